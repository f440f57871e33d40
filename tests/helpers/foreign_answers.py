"""Outputs of other tools' models: valid ones with their actions, and invalid ones."""

import json

from uivlm.actions.action import Action, Finish, InvalidAction, Point, Press, Swipe, Tap, Type
from uivlm.evaluation.answer_formats import MAX_CHARS, parse_answer
from uivlm.evaluation.names import AnswerFormat

SIZE = (2000, 1000)  # height, width: not square, so that a swap of the two shows
FOREIGN_FORMATS: tuple[AnswerFormat, ...] = (
    "seeclick", "showui", "autoui", "mobile_use", "uitars", "osatlas",
)  # fmt: skip
FIXED = [Press("back"), Press("home"), Press("enter"), Finish("complete"), Finish("impossible")]
DOWN, UP = Swipe(Point(0.8, 0.5), Point(0.2, 0.5)), Swipe(Point(0.2, 0.5), Point(0.8, 0.5))  # of the content
LEFT, RIGHT = Swipe(Point(0.5, 0.2), Point(0.5, 0.8)), Swipe(Point(0.5, 0.8), Point(0.5, 0.2))


def parse(text: str, answer_format: AnswerFormat) -> Action | InvalidAction:
    return parse_answer(text, answer_format, SIZE)


def decision(name: str, touch: str = "[-1.0, -1.0]", lift: str = "[-1.0, -1.0]", text: str = "") -> str:
    return (
        f'Action Decision: "action_type": "{name}", "touch_point": "{touch}", "lift_point": "{lift}", '
        f'"typed_text": "{text}"'
    )


def tool(**arguments: object) -> str:
    call = json.dumps({"name": "mobile_use", "arguments": arguments})
    return f"<tool_call>\n{call}\n</tool_call>"


SEECLICK = [
    ('{"action_type": 4, "click_point": (0.49,0.61)}', Tap(Point(0.61, 0.49))),
    ('  {"click_point": [0, 1], "action_type": 4}\n', Tap(Point(1, 0))),
    ('{"action_type": 3, "typed_text": "it\'s \\"new\\" é"}', Type('it\'s "new" é')),
    ('{"action_type": 3, "typed_text": ""}', Type("")),
    ('{"action_type": 3, "typed_text": "C:\\d"}', Type("C:\\d")),
    ('{"action_type": 0}', DOWN),
    ('{"action_type": 1}', UP),
    ('{"action_type": 8}', LEFT),
    ('{"action_type": 9}', RIGHT),
    *zip([f'{{"action_type": {type_id}}}' for type_id in (5, 6, 7, 10, 11)], FIXED, strict=True),
]
PLAN = "Action Plan: [DUAL_POINT, PRESS_HOME, STATUS_TASK_COMPLETE]; "
AUTOUI = [
    (PLAN + decision("DUAL_POINT", "[0.8497, 0.5964]", "[0.8497, 0.5964]"), Tap(Point(0.8497, 0.5964))),
    (decision("DUAL_POINT", "[0.5, 0.5]", "[0.5, 0.53]"), Tap(Point(0.5, 0.5))),
    (PLAN + decision("DUAL_POINT", "[0.8, 0.5]", "[0.2, 0.5]"), DOWN),
    (PLAN + decision("TYPE", text="what's new in Zürich; Action Plan: [1]"),
     Type("what's new in Zürich; Action Plan: [1]")),
    (decision("PRESS_BACK"), FIXED[0]),
    (PLAN + decision("PRESS_HOME"), FIXED[1]),
    (PLAN + decision("PRESS_ENTER"), FIXED[2]),
    (PLAN + decision("STATUS_TASK_COMPLETE"), FIXED[3]),
    (PLAN + decision("STATUS_TASK_IMPOSSIBLE"), FIXED[4]),
]  # fmt: skip
MOBILE_USE = [
    (tool(action="click", coordinate=[250, 500]), Tap(Point(0.25, 0.25))),
    (tool(action="click", coordinate=[1000, 2000]), Tap(Point(1, 1))),
    (tool(action="click", coordinate=[250.5, 500]), Tap(Point(0.25, 0.2505))),
    (tool(action="swipe", coordinate=[500, 1600], coordinate2=[500, 400]), DOWN),
    (tool(action="swipe", coordinate=[500, 1600], coordinate2=[530, 1600]), Tap(Point(0.8, 0.5))),
    (tool(action="type", text='a "quoted"\nline 漢 </tool_call>'), Type('a "quoted"\nline 漢 </tool_call>')),
    (tool(action="system_button", button="Back"), FIXED[0]),
    (tool(action="system_button", button="HOME"), FIXED[1]),
    (tool(action="system_button", button="enter"), FIXED[2]),
    (tool(action="terminate", status="success"), FIXED[3]),
    (tool(action="terminate", status="failure"), FIXED[4]),
    ("Thought: a {brace} and a call.\nAction: tap\n"
     + tool(action="click", coordinate=[0, 0]), Tap(Point(0, 0))),
    ('{"name": "mobile_use", "arguments": {"action": "type", "text": "bare"}}', Type("bare")),
    ('So I type.\n{"name": "mobile_use", "arguments": {"action": "type", "text": "x"}}\n', Type("x")),
    ('<tool_call>{"name": "mobile_use", "arguments": {"action": "type", "text": "cut"}}', Type("cut")),
    ('{"name": "mobile_use", "arguments": {"action": "type", "text": "half"}}\n</tool_call>', Type("half")),
    (tool(action="system_button", button="Back") + "\nThat is all.", FIXED[0]),
]  # fmt: skip
UITARS = [
    ("Thought: The field is empty.\nAction: click(start_box='(250,500)')", Tap(Point(0.25, 0.25))),
    ("Action: left_single(start_box='(250, 500)')", Tap(Point(0.25, 0.25))),
    ("Action: click(start_box='<|box_start|>(250,500)<|box_end|>')", Tap(Point(0.25, 0.25))),
    ("Action: click(point='<point>250 500</point>')", Tap(Point(0.25, 0.25))),
    ("Action: click(start_box='[200, 400, 300, 600]')", Tap(Point(0.25, 0.25))),
    ("Action: click(start_box='(200,400,300,600)')", Tap(Point(0.25, 0.25))),
    ("click(start_box='250.0,500.0')", Tap(Point(0.25, 0.25))),
    ("Action: drag(start_box='(500,1600)', end_box='(500,400)')", DOWN),
    ("Action: drag(start_point='<point>500 1600</point>', end_point='<point>500 400</point>')", DOWN),
    ("Action: drag(start_box='(500,1600)', end_box='(500,1610)')", Tap(Point(0.8, 0.5))),
    ("Action: scroll(start_box='(500,1000)', direction='down')", Swipe(Point(0.75, 0.5), Point(0.25, 0.5))),
    ("Action: scroll(start_box='(500,1000)', direction='up')", Swipe(Point(0.25, 0.5), Point(0.75, 0.5))),
    ("Action: scroll(start_box='(500,1000)', direction='left')", Swipe(Point(0.5, 0.25), Point(0.5, 0.75))),
    ("Action: scroll(point='<point>500 1000</point>', direction='right')",
     Swipe(Point(0.5, 0.75), Point(0.5, 0.25))),
    ("Action: scroll(start_box='(500,1800)', direction='down')", Swipe(Point(1, 0.5), Point(0.65, 0.5))),
    ("Action: scroll(start_box='(1000,0)', direction='right')",
     Swipe(Point(0, 1), Point(0, 0.75))),
    ("Action: type(content='it\\'s \\\"new\\\"\\n')", Type('it\'s "new"\n')),
    ("Action: type(content=\"it's\")", Type("it's")),
    ("Action: type(content='two\nlines')", Type("two\nlines")),
    ("Action: type(content='')", Type("")),
    ("Action: type(content='50\\d')", Type("50\\d")),
    ("Action: press_back()", FIXED[0]),
    ("Action: press_home()\n", FIXED[1]),
    ("Action: press_enter()", FIXED[2]),
    ("Action: hotkey(key='enter')", FIXED[2]),
    ("Action: finished(content='done')", FIXED[3]),
    ("Action: finished()", FIXED[3]),
    ("Action: call_user()", FIXED[4]),
]  # fmt: skip
SHOWUI = [
    ("{'action': 'CLICK', 'value': None, 'position': [0.49, 0.61]}", Tap(Point(0.61, 0.49))),
    ("  {'action': 'click', 'position': (0, 1)}\n", Tap(Point(1, 0))),
    ("{'action': 'TYPE', 'value': \"it's new\", 'position': None}", Type("it's new")),
    ("{'action': 'TYPE', 'value': '', 'position': None}", Type("")),
    ("{'action': 'SCROLL DOWN', 'value': None, 'position': None}", DOWN),
    ("{'action': 'SCROLL UP'}", UP),
    ("{'action': 'scroll left'}", LEFT),
    ("{'action': 'SCROLL RIGHT'}", RIGHT),
    ("{'action': 'PRESS BACK', 'value': None, 'position': None}", FIXED[0]),
    ("{'action': 'PRESS HOME'}", FIXED[1]),
    ("{'action': 'PRESS ENTER'}", FIXED[2]),
    ("{'action': 'STATUS TASK COMPLETE'}", FIXED[3]),
    ("{'action': 'STATUS TASK IMPOSSIBLE'}", FIXED[4]),
]
THOUGHTS = "thoughts:\nclick the (x) button.\nactions:\n"
OSATLAS = [
    (THOUGHTS + "CLICK <point>[[250, 500]]</point>", Tap(Point(0.25, 0.25))),
    ("CLICK <point>[[250,500]]</point><|im_end|>", Tap(Point(0.25, 0.25))),
    ("actions:\nCLICK <point>[[250.5, 500]]</point>\n", Tap(Point(0.25, 0.2505))),
    (THOUGHTS + "TYPE [it's [new]]", Type("it's [new]")),
    ("TYPE []", Type("")),
    (THOUGHTS + "SCROLL [DOWN]", Swipe(Point(0.75, 0.5), Point(0.25, 0.5))),
    ("SCROLL [UP]", Swipe(Point(0.25, 0.5), Point(0.75, 0.5))),
    ("SCROLL [LEFT]", Swipe(Point(0.5, 0.25), Point(0.5, 0.75))),
    ("SCROLL [RIGHT]", Swipe(Point(0.5, 0.75), Point(0.5, 0.25))),
    (THOUGHTS + "PRESS_BACK", FIXED[0]),
    ("PRESS_HOME", FIXED[1]),
    ("ENTER", FIXED[2]),
    (THOUGHTS + "COMPLETE<|im_end|>", FIXED[3]),
    ("IMPOSSIBLE", FIXED[4]),
]
VALID = [
    *((text, "showui", action) for text, action in SHOWUI),
    *((text, "osatlas", action) for text, action in OSATLAS),
    *((text, "seeclick", action) for text, action in SEECLICK),
    *((text, "autoui", action) for text, action in AUTOUI),
    *((text, "mobile_use", action) for text, action in MOBILE_USE),
    *((text, "uitars", action) for text, action in UITARS),
]


CLICK = tool(action="click", coordinate=[1, 1])
BARE = '{"name": "mobile_use", "arguments": {"action": "click", "coordinate": [1, 1]}}'
REFUSED_BY_ALL = [
    "",
    " ",
    "\n",
    "{}",
    "[]",
    "None",
    "tap at 5 5",
    "\ud800",
    "\x00",
    "{",
    "Action:",
    "é" * 300,
    "x" * (MAX_CHARS + 1),
]
REFUSED = {
    "showui": [
        "{'action': 'CLICK'}", "{'action': 'CLICK', 'position': None}",
        "{'action': 'CLICK', 'position': [0.5]}",
        "{'action': 'CLICK', 'position': [0.5, 1.01]}", "{'action': 'CLICK', 'position': [-0.1, 0.5]}",
        "{'action': 'CLICK', 'position': ['0.5', 0.5]}", "{'action': 'CLICK', 'position': [True, 0.5]}",
        "{'action': 'CLICK', 'position': [1e999, 0.5]}", "{'action': 'TYPE', 'value': None}",
        "{'action': 'TYPE', 'value': 5}", "{'action': 'SCROLL'}", "{'action': 'SCROLL FORWARD'}",
        "{'action': 'PRESS_BACK'}", "{'action': 'HOVER'}", "{'action': 4}", "{'action': None}",
        "[{'action': 'PRESS BACK'}]", "{'action': 'PRESS BACK'}, {'action': 'PRESS HOME'}",
        "I see. {'action': 'PRESS BACK'}", "{'action': __import__('os').name}", "{[]: 1}",
    ],
    "osatlas": [
        "CLICK", "CLICK [[1, 1]]", "CLICK <point>[1, 1]</point>", "CLICK <point>[[1]]</point>",
        "CLICK <point>[[1001, 1]]</point>", "CLICK <point>[[1, 2001]]</point>",
        "CLICK <point>[[-1, 1]]</point>",
        "CLICK <point>[[1, 1, 2, 2]]</point>", "CLICK <point>[[nan, 1]]</point>",
        "CLICK <point>[[1, 1]]</point> CLICK <point>[[2, 2]]</point>", "CLICK <point>[[\u0661, 1]]</point>",
        "CLICK <point>[[%s, 1]]</point>" % ("9" * 400), "TYPE milk", "TYPE", "TYPE [a]\nENTER",
        "TYPE [a]\nTYPE [b]",
        "SCROLL", "SCROLL [FORWARD]", "SCROLL [down]", "press_back", "PRESS_BACK PRESS_HOME", "PRESS_MENU",
        "thoughts:\nI press PRESS_BACK", "actions:\n", THOUGHTS + "PRESS_BACK\nactions:\nPRESS_HOME",
    ],
    "seeclick": [
        '{"action_type": 2}', '{"action_type": -4}', '{"action_type": True}', '{"action_type": 5.0}',
        '{"action_type": "5"}',
        '{"action_type": 4}', '{"action_type": 4, "click_point": (0.5,)}',
        '{"action_type": 4, "click_point": (0.5, 0.5, 0.5)}',
        '{"action_type": 4, "click_point": "ab"}', '{"action_type": 4, "click_point": ("0.5", "0.5")}',
        '{"action_type": 4, "click_point": (True, 0.5)}', '{"action_type": 4, "click_point": (None, 0.5)}',
        '{"action_type": 4, "click_point": (1e999, 0.5)}',
        '{"action_type": 4, "click_point": (1e999-1e999, 0.5)}',
        '{"action_type": 4, "click_point": (1.01, 0.5)}', '{"action_type": 4, "click_point": (0.5, -0.01)}',
        '{"action_type": 4, "click_point": (1j, 0.5)}',
        '{"action_type": 4, "click_point": (%s, 0.5)}' % ("9" * 4000),
        '{"action_type": 0x%s}' % ("f" * 5000), '{"action_type": 4, "click_point": {0.5, 0.6}}',
        '{"action_type": 3}', '{"action_type": 3, "typed_text": 5}', '{"action_type": 3, "typed_text": b"x"}',
        '{"action_type": 3, "typed_text": "a"b"}', '{"action_type": 3, "typed_text": "a" * 9}',
        '{"action_type": true}',
        '{"action_type": 5} {"action_type": 6}', 'I press {"action_type": 5}',
        '{"action_type": 5}, {"action_type": 6}',
        '{"action_type": __import__("os").getpid()}', '{"action_type": (lambda: 5)()}', "{[]: 1}",
        '[{"action_type": 5}]',
    ],
    "autoui": [
        decision("DUAL_POINT"), decision("DUAL_POINT", "[0.5]", "[0.5]"),
        decision("DUAL_POINT", "[0.5, 0.5]", "[0.5, 1.5]"),
        decision("DUAL_POINT", "[NaN, 0.5]", "[0.5, 0.5]"),
        decision("DUAL_POINT", "[Infinity, 0.5]", "[0.5, 0.5]"),
        decision("DUAL_POINT", "[true, 0.5]", "[0.5, 0.5]"), decision("DUAL_POINT", "0.5, 0.5", "0.5, 0.5"),
        decision("DUAL_POINT", "5", "[0.5, 0.5]"), decision("DUAL_POINT", "[1, 1, 1]", "[0.5, 0.5]"),
        decision("DUAL_POINT", "", ""),
        decision("SCROLL"), decision("press_back"), decision(""), decision("TYPE", text='a"b'),
        decision("TYPE", text="a\\qb"),
        'Action Decision: "action_type": "TYPE"', 'Action Decision: "action_type": "DUAL_POINT"',
        "Action Decision:",
        'Action Decision: "action_type": 5', 'Action Decision: "action_type": ["TYPE"]',
        'Action Decision: {"action_type": "PRESS_BACK"}',
        decision("PRESS_BACK").removeprefix("Action Decision: "), "I think. " + decision("PRESS_BACK"), PLAN,
        decision("PRESS_BACK") + " " + decision("PRESS_HOME"), decision("PRESS_BACK") + "}",
        decision("PRESS_BACK") + ".",
        'Action Decision: "action_type": "DUAL_POINT", "touch_point": [0.5, 0.5], "lift_point": [0.5, 0.5]',
    ],
    "mobile_use": [
        tool(action="double_click", coordinate=[1, 1]), tool(action="click"),
        tool(action="click", coordinate=[1]),
        tool(action="click", coordinate=[1, 1, 1, 1]), tool(action="click", coordinate="[1, 1]"),
        tool(action="click", coordinate=["1", "1"]),
        tool(action="click", coordinate=[True, 1]), tool(action="click", coordinate=[None, 1]),
        tool(action="click", coordinate=[float("nan"), 1]),
        tool(action="click", coordinate=[float("inf"), 1]), tool(action="click", coordinate=[-1, 1]),
        tool(action="click", coordinate=[1001, 1]),
        tool(action="click", coordinate=[1, 2001]), tool(action="click", coordinate=[10**4000, 1]),
        tool(action="swipe", coordinate=[1, 1]),
        tool(action="swipe", coordinate=[1, 1], coordinate2=[1, 9999]), tool(action="type"),
        tool(action="type", text=5),
        tool(action="terminate"), tool(action="terminate", status="maybe"), tool(action=["click"]),
        tool(action=None), tool(),
        CLICK + CLICK, CLICK + "\n" + BARE, BARE + "\n" + BARE, BARE + " and so on", "<tool_call>" + CLICK,
        "<tool_call>", "</tool_call>",
        BARE.replace("mobile_use", "computer_use"), BARE.replace('"mobile_use"', "null"), BARE[:-1],
        BARE + "}", f"[{BARE}]",
        '{"name": "mobile_use"}', '{"name": "mobile_use", "arguments": []}',
        '{"name": "mobile_use", "arguments": "{}"}',
        "{'name': 'mobile_use', 'arguments': {'action': 'wait'}}",
        '{"action": "click", "coordinate": [1, 1]}',
    ],
    "uitars": [
        "Action: double_tap(start_box='(1,1)')", "Action: click()", "Action: click(start_box='(1,1')",
        "Action: click(start_box=(1,1))",
        "Action: click('(1,1)')", "Action: click(start_box='1')", "Action: click(start_box='(1,1,1)')",
        "Action: click(start_box='')",
        "Action: click(start_box='(nan,1)')", "Action: click(start_box='(1e3,1)')",
        "Action: click(start_box='(1,1) (2,2)')",
        "Action: click(start_box='(%s,1)')" % ("9" * 400),
        "Action: click(start_box='(-{0},1,{0},1)')".format("9" * 400),
        "Action: click(start_box='(1001,1)')", "Action: click(start_box='(1,-1)')",
        "Action: click(start_box='(\u0661,1)')",
        "Action: click(start_box='(1,1)', start_box='(2,2)')", "Action: click(**{'start_box': '(1,1)'})",
        "Action: click(*['(1,1)'])",
        "Action: click(start_box=f'(1,1)')", "Action: click(start_box=b'(1,1)')",
        "Action: click(start_box='(1,1)', button=1)",
        "Action: click(start_box='(1,1)')\n\nclick(start_box='(2,2)')",
        "Action: press_back()\nAction: press_home()", "Action: press_back",
        "Action: press_back(); press_home()", "Action: (press_back(), press_home())",
        "Action: press_back() or press_home()",
        "Action: os.press_back()", "Action: press_back()()", "Action: [press_back()]", "press_back() then",
        "Thought: press_back()",
        "Action: drag(start_box='(1,1)')", "Action: scroll(start_box='(1,1)')",
        "Action: scroll(start_box='(1,1)', direction='forward')",
        "Action: scroll(direction='down')", "Action: type()", "Action: type(content=5)",
        "Action: type(content='open)", "Action: press_menu()", "Action: __import__('os').getpid()",
        "Action: exec(content='1/0')",
    ],
}  # fmt: skip
