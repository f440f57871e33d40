"""The label vocabulary of the simulated phone: tuples of labels and their `lexicon()`.

It is small on purpose: a tiny vision model learns to read exactly these words. Only typed text may contain
others.
"""

from functools import lru_cache

# -- apps ---------------------------------------------------------------------------------------------------

IMPLEMENTED_APPS = ("Settings", "Clock", "Contacts", "Messages", "Notes", "Shop", "Browser", "Calendar")
STUB_APPS = (
    *("Camera", "Photos", "Maps", "Music", "Radio", "Weather", "Mail", "Files", "Games", "Books", "News"),
    *("Health", "Wallet", "Podcast", "Recorder", "Chess", "Bank", "Taxi", "Metro"),
    *("Pizza", "Video", "Fitness"),
)
APPS = IMPLEMENTED_APPS + STUB_APPS

# -- people and what they write -----------------------------------------------------------------------------

CONTACTS = (
    *("Anna", "Boris", "Clara", "David", "Emma", "Felix", "Grace", "Hugo", "Irene", "Jack", "Karim"),
    *("Lucy", "Marco", "Nadia", "Oscar", "Paula", "Quinn", "Rosa", "Simon", "Tina", "Ursula", "Victor"),
    *("Wanda", "Yusuf", "Zoe", "Amir", "Bella", "Diego", "Edith", "Frank", "Gina", "Henry", "Ivan"),
    *("Julia", "Kevin", "Mei"),
)
PHRASES = (
    *("see you soon", "call me back", "I am late", "on my way", "happy birthday", "good luck"),
    *("thank you", "where are you", "dinner is ready", "lunch today", "send the keys", "bring the map"),
    *("wait for me", "all is well", "sounds good", "not today"),
)  # messages that goals ask to send
CHAT_LINES = (
    *("hello", "how are you", "fine thanks", "no problem", "great news", "too late", "maybe later"),
    *("good night", "yes please", "of course", "nice photo", "I will try", "what is new", "miss you"),
    *("so tired", "well done"),
)  # small talk in conversations
APPOINTMENT_PREFIXES = ("meet at", "train at", "call at", "party at")  # + a time
LINK_PREFIXES = ("look at", "read")  # + a site

# -- notes --------------------------------------------------------------------------------------------------

NOTE_TITLES = (
    *("Party", "Gift", "Todo", "Garden", "Trip", "Office", "School", "Team", "Family"),
    *("Summer", "Ideas", "Plans"),
)
NOTE_TEXTS = ("water plants", "pay rent", "fix bike", "clean car", "feed cat", "learn piano", "book hotel")
NOTE_VERBS = {"person": "Ask", "item": "Buy", "setting": "Check", "app": "Use"}  # + the secret

# -- things and places --------------------------------------------------------------------------------------

COLORS = ("Red", "Blue", "Green", "Black", "White", "Golden")
THINGS = (
    "Lamp",
    "Mug",
    "Chair",
    "Jacket",
    "Kettle",
    "Pillow",
    "Scarf",
    "Bottle",
    "Carpet",
    "Umbrella",
    "Vase",
    "Tent",
)
ITEMS = tuple(f"{color} {thing}" for thing in THINGS for color in COLORS)
SITES = {  # bookmark: address
    "Recipes": "cook.net",
    "Museum": "art.org",
    "Football": "goal.com",
    "Animals": "zoo.net",
    "Movies": "film.com",
    "Flights": "fly.com",
    "Stocks": "money.com",
    "Science": "lab.org",
    "Poems": "verse.net",
    "Tennis": "serve.com",
    "Puzzles": "riddle.net",
    "Cheap": "deal.com",
    "History": "past.org",
    "Languages": "speak.org",
}
HEADINGS = ("Today", "Popular", "Latest", "Stories", "About", "Help")

# -- settings -----------------------------------------------------------------------------------------------

SETTINGS = {
    "Network": ("Wifi", "Bluetooth", "Hotspot", "Roaming", "Airplane"),
    "Display": ("Dark mode", "Rotation", "Zoom", "Night light", "Dimming"),
    "Sound": ("Vibration", "Ringtone", "Touch tone", "Silence", "Bass"),
    "Privacy": ("Location", "Tracking", "Microphone", "Cookies", "Ads"),
    "Battery": ("Saver", "Percent", "Fast charge", "Standby"),
    "Security": ("Lock", "Face", "Finger", "Pattern"),
    "Storage": ("Cleanup", "Backup", "Cache", "Trash"),
    "Keyboard": ("Swipe", "Spelling", "Emoji", "Caps"),
    "Language": ("Dictation", "Captions", "Reader"),
    "Accounts": ("Sync", "Guest", "Child"),
    "System": ("Updates", "Gestures", "Developer"),
    "Sharing": ("Nearby", "Cast", "Printing"),
}
QUICK = (
    "Torch",
    "Focus",
    "Mute",
    "Stream",
    "Invert",
    "Compass",
)  # switches of the panel pulled down from the top

# -- clock, calendar, numbers -------------------------------------------------------------------------------

TIMES = tuple(f"{hour}:{minute:02d}" for hour in range(24) for minute in (0, 15, 30, 45))
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
EVENTS = ("Dentist", "Meeting", "Yoga", "Concert", "Swimming", "Haircut")
DIGIT_PAIRS = (
    "12",
    "18",
    "23",
    "27",
    "31",
    "36",
    "42",
    "49",
    "54",
    "58",
    "60",
    "65",
    "71",
    "76",
    "83",
    "87",
    "90",
    "94",
)
PRICES = tuple(f"{pair}.50" for pair in DIGIT_PAIRS)
DIGITS = ("1", "2", "3")

# -- labels of apps, the most common wording first ----------------------------------------------------------

LABEL_WORDINGS: dict[str, tuple[str, ...]] = {
    "save": ("Save", "Done", "OK"),
    "send": ("Send", "Go"),
    "add to cart": ("Add to cart", "Put in cart"),
    "checkout": ("Checkout", "Continue"),
    "buy": ("Buy", "Pay", "Order"),
    "bought": ("Thank you", "Order placed"),
    "in cart": ("In cart", "Added"),
    "delete": ("Delete", "Remove"),
    "alarms": ("Alarms", "Alarm"),
    "timer": ("Timer", "Watch"),
    "store": ("Store", "Search"),
    "cart": ("Cart", "Basket"),
    "web": ("Web", "Page"),
    "saved": ("Saved", "Bookmarks"),
    "new alarm": ("New alarm", "Add alarm"),
    "new contact": ("New contact", "Add contact"),
    "new note": ("New note", "Add note"),
    "find apps": ("Find apps", "Search apps"),
    "find items": ("Find items", "Search items"),
    "address": ("Address", "Enter address"),
    "message": ("Message", "Write"),
    "name": ("Name",),
    "number": ("Number",),
    "time": ("Time",),
    "title": ("Title",),
    "text": ("Text",),
    "price": ("Price",),
    "total": ("Total",),
    "empty": ("Empty", "Nothing here"),
    "not found": ("Not found",),
    "welcome": ("Welcome",),
    "quick": ("Quick panel",),
    "end": ("End",),
    "start": ("Start",),
    "sure": ("Are you sure?",),
    "cancel": ("Cancel", "Keep"),
}
# Lines, buttons, index of the button to press.
NOTICES: tuple[tuple[tuple[str, ...], tuple[str, str], int], ...] = (
    (("Update ready",), ("Later", "Update"), 0),
    (("New version", "Install now?"), ("Later", "Install"), 0),
    (("Like it?",), ("Skip", "Rate"), 0),
    (("Battery is low",), ("Skip", "Charge"), 0),
    (("Allow location?",), ("Deny", "Allow"), 1),
    (("Allow camera?",), ("Deny", "Allow"), 1),
)


@lru_cache(maxsize=1)
def lexicon() -> tuple[str, ...]:
    """Return every distinct word that the phone can draw, in the order of this file."""
    all_labels = [
        *(*APPS, *CONTACTS, *PHRASES, *CHAT_LINES, *APPOINTMENT_PREFIXES, *LINK_PREFIXES),
        *(*NOTE_TITLES, *NOTE_TEXTS, *NOTE_VERBS.values(), *ITEMS, *SITES, *SITES.values(), *HEADINGS),
        *(*SETTINGS, *(label for switches in SETTINGS.values() for label in switches), *QUICK),
        *(*TIMES, *DAYS, *EVENTS, *DIGIT_PAIRS, *PRICES, *DIGITS),
        *(word for wording in LABEL_WORDINGS.values() for word in wording),
        *(word for lines, buttons, _ in NOTICES for word in (*lines, *buttons)),
    ]
    return tuple(dict.fromkeys(word.rstrip("?") for label in all_labels for word in label.split()))
