//! Pages, searched with CSS selectors.

use scraper::{ElementRef, Html, Selector};

fn map<T>(page: &str, selector: &str, of: impl Fn(ElementRef<'_>) -> T) -> Vec<T> {
    let selector = Selector::parse(selector).expect("a selector");
    Html::parse_document(page).select(&selector).map(of).collect()
}

/// The elements that match, as HTML.
pub(crate) fn elements(page: &str, selector: &str) -> Vec<String> {
    map(page, selector, |element| element.html())
}

/// The first element that matches, as HTML; fails if there is none.
pub(crate) fn element(page: &str, selector: &str) -> String {
    let found = elements(page, selector).into_iter().next();
    found.unwrap_or_else(|| panic!("no {selector}: {page}"))
}

/// Whether an element matches.
pub(crate) fn has(page: &str, selector: &str) -> bool {
    !elements(page, selector).is_empty()
}

/// An attribute of the first element that matches and has it.
pub(crate) fn attribute(page: &str, selector: &str, name: &str) -> Option<String> {
    attributes(page, selector, name).into_iter().next()
}

/// An attribute of all elements that match and have it.
pub(crate) fn attributes(page: &str, selector: &str, name: &str) -> Vec<String> {
    map(page, selector, |element| element.attr(name).map(str::to_owned))
        .into_iter()
        .flatten()
        .collect()
}
