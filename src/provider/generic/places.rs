//! Where a value is in a vendor's document, and how it is read: the same for responses, status lookups, fetched and
//! posted receipts.

use std::ops::Deref;
use std::slice;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value as Json;
use smsq_message::text::Hinted;
use toml::Value;

use crate::response::{ResponseView, scalar};

/// A JSON pointer: empty, or with `/` at the beginning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Pointer(String);

impl TryFrom<String> for Pointer {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        if text.is_empty() || text.starts_with('/') {
            return Ok(Self(text));
        }
        Err("must be a JSON pointer like `/id`")
    }
}

impl Deref for Pointer {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Places of a value in a document. The first place with a value counts.
#[derive(Clone, Debug)]
pub(super) struct Pointers(Vec<Place>);

/// JSON pointers whose values are joined with spaces; a word without `/` is a fixed text. All but the first value may be
/// missing.
#[derive(Clone, Debug)]
struct Place(Vec<String>);

impl<'de> Deserialize<'de> for Pointers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let error = || de::Error::custom("must be a JSON pointer like `/id`, or a list of them");
        let values = match Value::deserialize(deserializer)? {
            Value::Array(values) => values,
            value => vec![value],
        };
        let place = |value: Value| {
            let text = value.as_str().ok_or_else(error)?;
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            if words.iter().any(|word| word.starts_with('/')) {
                return Ok(Place(words));
            }
            let problem = Hinted::new(
                format!("`{text}` is not a JSON pointer"),
                format!("write `/{text}`, and `/a/b` for `b` in `a`"),
            );
            Err(de::Error::custom(problem.joined()))
        };
        values.into_iter().map(place).collect::<Result<_, _>>().map(Self)
    }
}

impl Pointers {
    /// Only the places that belong to an entry of a list, or only those of the whole document; `None` without any.
    pub(super) fn of_level(&self, is_entry: bool) -> Option<Self> {
        let places: Vec<Place> = self
            .0
            .iter()
            .filter(|place| place.0.iter().any(|word| word.contains("/*")) == is_entry)
            .cloned()
            .collect();
        (!places.is_empty()).then_some(Self(places))
    }

    /// The first place, as it is written in the section.
    pub(super) fn first_place(&self) -> String {
        self.0.first().map_or_else(String::new, |place| place.0.join(" "))
    }
}

/// A document, or an entry of its list, in which values are searched.
#[derive(Clone, Copy)]
pub(super) struct Node<'a> {
    json: &'a Json,
    /// What `*` in a pointer means.
    index: Option<usize>,
    /// `/item` in a pointer: one of the entry's own items.
    item: Option<&'a Json>,
    /// `/query` in a pointer: the query of a posted request, unless the entry has a `query` itself.
    query: Option<&'a Json>,
}

impl<'a> Node<'a> {
    pub(super) fn new(json: &'a Json) -> Self {
        Self { json, index: None, item: None, query: None }
    }

    /// The whole response, with an index for pointers to its list. Without JSON it has no values.
    pub(super) fn of_response(response: &'a ResponseView<'_>, index: Option<usize>) -> Self {
        static NULL: Json = Json::Null;
        Self { index, ..Self::new(response.json.as_ref().unwrap_or(&NULL)) }
    }

    pub(super) fn with_query(self, query: &'a Json) -> Self {
        Self { query: self.json.get("query").is_none().then_some(query), ..self }
    }

    pub(super) fn with_item(self, item: &'a Json) -> Self {
        Self { item: Some(item), ..self }
    }

    pub(super) fn json(self) -> &'a Json {
        self.json
    }

    /// The entries at `list`; without a list the document is the only entry. `None`: the place has no list.
    pub(super) fn entries(self, list: Option<&Pointer>) -> Option<&'a [Json]> {
        match list {
            Some(list) => self.json.pointer(list)?.as_array().map(Vec::as_slice),
            None => Some(slice::from_ref(self.json)),
        }
    }

    pub(super) fn scalar(self, pointer: &str) -> Option<String> {
        for (name, json) in [("/item", self.item), ("/query", self.query)] {
            if let (Some(json), Some(rest)) = (json, pointer.strip_prefix(name))
                && (rest.is_empty() || rest.starts_with('/'))
            {
                return scalar(json, rest);
            }
        }
        match self.index {
            None => scalar(self.json, pointer),
            Some(index) => scalar(self.json, &pointer.replace("/*", &format!("/{index}"))),
        }
    }

    /// All values at these places.
    pub(super) fn values(self, places: Option<&Pointers>) -> Vec<String> {
        places
            .into_iter()
            .flat_map(|places| &places.0)
            .filter_map(|place| self.value(place))
            .collect()
    }

    /// The first value at these places.
    pub(super) fn first(self, places: Option<&Pointers>) -> Option<String> {
        places?.0.iter().find_map(|place| self.value(place))
    }

    fn value(self, place: &Place) -> Option<String> {
        let mut values = Vec::new();
        let mut has_value = false;
        for word in &place.0 {
            if !word.starts_with('/') {
                values.push(word.clone());
                continue;
            }
            let value = self.scalar(word);
            if value.is_none() && !has_value {
                return None;
            }
            has_value = true;
            values.extend(value);
        }
        Some(values.join(" "))
    }
}
