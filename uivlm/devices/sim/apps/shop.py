"""Shop: a search, results, item pages, the cart, the checkout. A state in, a drawn view out."""

from functools import partial

from uivlm.devices.sim.navigation import PhoneState
from uivlm.devices.sim.view import AppView, ListRow


def shop(state: PhoneState, view: AppView) -> None:
    entry = state.current
    match entry.page:
        case "results":
            view.title("Shop")
            view.list([_row(state, item) for item in search_results(state.world.stock, entry.item)])
        case "item":
            _item(state, view, entry.item)
        case "checkout":
            _checkout(state, view)
        case "bought":
            view.title("Shop")
            view.text(view.look.label("bought"))
        case "cart":
            _main(state, view, "cart")
        case _:
            _main(state, view, "store")


def search_results(stock: list[str], query: str) -> list[str]:
    """Return all items that share a word with the query, the best match first."""
    query_words = set(query.casefold().split())
    shared = {item: len(query_words & set(item.casefold().split())) for item in stock}
    return sorted((item for item in stock if shared[item]), key=lambda item: -shared[item])


def _row(state: PhoneState, item: str) -> ListRow:
    return ListRow(item, partial(state.push, "Shop", "item", item))


def _main(state: PhoneState, view: AppView, tab: str) -> None:
    def search() -> None:
        query = state.current.fields.get("search", "").strip()
        if query:
            state.push("Shop", "results", query)

    view.title("Shop", back=False)
    view.tabs([(key, partial(state.replace_current, "Shop", key)) for key in ("store", "cart")], tab)
    if tab == "store":
        view.field("search", view.look.label("find items"))
        view.text(view.look.label("welcome"), faint=True)
        view.on_enter = search
        return
    if state.world.cart:
        view.end_row -= 1
        view.button("checkout", partial(state.push, "Shop", "checkout"), row=view.end_row)
    view.list([_row(state, item) for item in state.world.cart])


def _item(state: PhoneState, view: AppView, item: str) -> None:
    view.title(item)
    view.text(f"{view.look.label('price')} {state.world.prices[item]}")
    if item in state.world.cart:
        view.next_row += 1
        view.text(view.look.label("in cart"))
    else:
        view.button("add to cart", partial(state.world.cart.append, item))


def _checkout(state: PhoneState, view: AppView) -> None:
    def buy() -> None:
        state.world.bought.extend(state.world.cart)
        state.world.cart.clear()
        state.replace_current("Shop", "bought")

    view.title("Shop")
    for item in state.world.cart[:6]:
        view.text(item)
    view.button("buy", buy)
