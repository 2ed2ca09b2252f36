//! Values that are never shown, and the keys of a section that hold them.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use toml::Value;

/// What is written in place of a secret.
pub const HIDDEN: &str = "[hidden]";

/// The name by which a deserializer knows that a value is secret.
const NAME: &str = "smsq::Secret";

/// A setting that may be a secret, or contain one. Neither `Debug`, nor `Serialize`, nor the error about a value that
/// cannot be read shows it, and errors about the configuration leave out the values of keys with this type.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    pub const fn expose(&self) -> &T {
        &self.0
    }

    pub const fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl<T> Serialize for Secret<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(HIDDEN)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Hidden<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for Hidden<T> {
            type Value = Secret<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value that is not shown")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Self::Value, D::Error> {
                T::deserialize(deserializer)
                    .map(Secret)
                    .map_err(|_| D::Error::custom("has the wrong type or form (it is not shown)"))
            }
        }

        deserializer.deserialize_newtype_struct(NAME, Hidden(PhantomData))
    }
}

/// The keys that `T` reads from `value` as a [`Secret`], with dots between their parts. Reading stops at the first value
/// that `T` does not take.
pub fn secret_keys<T: DeserializeOwned>(value: &Value) -> BTreeSet<String> {
    let found = RefCell::default();
    let probe = SecretFinder { value, key: String::new(), found: &found };
    // Only the keys are of interest, also those before a value that cannot be read.
    drop(T::deserialize(probe));
    found.into_inner()
}

/// Reads a value, and records which parts of it are secret.
struct SecretFinder<'a> {
    value: &'a Value,
    key: String,
    found: &'a RefCell<BTreeSet<String>>,
}

impl<'a> SecretFinder<'a> {
    fn inner(&self, name: Option<&str>, value: &'a Value) -> Self {
        let key = match (self.key.as_str(), name) {
            (key, None) => key.to_owned(),
            ("", Some(name)) => name.to_owned(),
            (key, Some(name)) => format!("{key}.{name}"),
        };
        Self { value, key, found: self.found }
    }
}

impl IntoDeserializer<'_, de::value::Error> for SecretFinder<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for SecretFinder<'_> {
    type Error = de::value::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        match self.value {
            Value::String(text) => visitor.visit_str(text),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Boolean(is) => visitor.visit_bool(*is),
            Value::Datetime(time) => visitor.visit_string(time.to_string()),
            Value::Array(items) => {
                let items = items.iter().map(|item| self.inner(None, item));
                visitor.visit_seq(SeqDeserializer::new(items))
            }
            Value::Table(table) => {
                let entries = table
                    .iter()
                    .map(|(name, value)| (name.as_str(), self.inner(Some(name), value)));
                visitor.visit_map(MapDeserializer::new(entries))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        if name == NAME {
            self.found.borrow_mut().insert(self.key.clone());
        }
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        match self.value {
            Value::String(text) => {
                visitor.visit_enum(StrDeserializer::<Self::Error>::new(text.as_str()))
            }
            Value::Table(table) => {
                let entries = table
                    .iter()
                    .map(|(name, value)| (name.as_str(), self.inner(Some(name), value)));
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(entries)))
            }
            _ => Err(Self::Error::custom("not a variant")),
        }
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, Deserialize, Serialize)]
    struct Account {
        name: String,
        password: Secret<String>,
        #[serde(default)]
        backup: Option<Box<Account>>,
        #[serde(default)]
        others: BTreeMap<String, Secret<Vec<String>>>,
    }

    fn table(text: &str) -> Value {
        Value::Table(text.parse().expect("valid TOML"))
    }

    #[test]
    fn secret_is_not_shown_by_debug_serialize_or_errors() {
        let account = table("name = 'ann'\npassword = 'hunter2'");
        let account: Account = account.try_into().expect("an account");
        assert_eq!(account.password.expose(), "hunter2");
        let json = serde_json::to_string(&account).expect("JSON");
        let toml = toml::to_string(&account).expect("TOML");
        for shown in [format!("{account:?}"), json, toml] {
            assert!(!shown.contains("hunter2"), "{shown}");
            assert!(shown.contains(HIDDEN), "{shown}");
        }
        for wrong in ["['hunter2']", "{ a = 'hunter2' }", "77001177", "true"] {
            let account = table(&format!("name = 'ann'\npassword = {wrong}"));
            let error = account.try_into::<Account>().expect_err(wrong).to_string();
            for part in ["hunter2", "77001177", "true"] {
                assert!(!error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn secret_keys_are_found_by_their_types() {
        let account = table(
            "name = 'ann'\npassword = 'a'\nbackup = { name = 'bob', password = 'b' }\n\
             others = { x = ['c'], y = [] }",
        );
        let keys = secret_keys::<Account>(&account);
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        assert_eq!(keys, ["backup.password", "others.x", "others.y", "password"]);
    }
}
