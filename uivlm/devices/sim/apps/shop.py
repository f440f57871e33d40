"""Shop: a search, results, item pages, the cart, the checkout. In a state, out a drawn view."""

from functools import partial

from uivlm.devices.sim.state import State
from uivlm.devices.sim.view import Row, View


def shop(state: State, view: View) -> None:
    place = state.place
    match place.page:
        case "results":
            view.title("Shop")
            view.list([_row(state, item) for item in results(state.world.stock, place.item)])
        case "item":
            _item(state, view, place.item)
        case "checkout":
            _checkout(state, view)
        case "bought":
            view.title("Shop")
            view.say(view.look.say("bought"))
        case "cart":
            _main(state, view, "cart")
        case _:
            _main(state, view, "store")


def results(stock: list[str], query: str) -> list[str]:
    """What the shop finds: everything that shares a word with the query, the best first."""
    wanted = set(query.casefold().split())
    shared = {item: len(wanted & set(item.casefold().split())) for item in stock}
    return sorted((item for item in stock if shared[item]), key=lambda item: -shared[item])


def _row(state: State, item: str) -> Row:
    return Row(item, partial(state.go, "Shop", "item", item))


def _main(state: State, view: View, tab: str) -> None:
    def search() -> None:
        query = state.place.fields.get("search", "").strip()
        if query:
            state.go("Shop", "results", query)

    view.title("Shop", back=False)
    view.tabs([(key, partial(state.swap, "Shop", key)) for key in ("store", "cart")], tab)
    if tab == "store":
        view.field("search", view.look.say("find items"))
        view.say(view.look.say("welcome"), faint=True)
        view.enter = search
        return
    if state.world.cart:
        view.bottom -= 1
        view.button("checkout", partial(state.go, "Shop", "checkout"), row=view.bottom)
    view.list([_row(state, item) for item in state.world.cart])


def _item(state: State, view: View, item: str) -> None:
    view.title(item)
    view.say(f"{view.look.say('price')} {state.world.prices[item]}")
    if item in state.world.cart:
        view.first += 1
        view.say(view.look.say("in cart"))
    else:
        view.button("add to cart", partial(state.world.cart.append, item))


def _checkout(state: State, view: View) -> None:
    def buy() -> None:
        state.world.bought.extend(state.world.cart)
        state.world.cart.clear()
        state.swap("Shop", "bought")

    view.title("Shop")
    for item in state.world.cart[:6]:
        view.say(item)
    view.button("buy", buy)
