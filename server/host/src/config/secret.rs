//! Settings that are not shown: passwords, also those in URLs.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use statestore_tokio::diagnostics::text::hide_credentials;

/// Returns settings without passwords, also those in URLs.
pub(super) fn shown(settings: &impl Serialize) -> toml::Table {
    let mut table = toml::Table::try_from(settings).unwrap_or_default();
    table.iter_mut().for_each(|(_, value)| hide(value));
    table
}

fn hide(value: &mut toml::Value) {
    match value {
        toml::Value::String(text) => *text = hide_credentials(text).into(),
        toml::Value::Array(values) => values.iter_mut().for_each(hide),
        toml::Value::Table(table) => table.iter_mut().for_each(|(_, value)| hide(value)),
        _ => {}
    }
}

/// A password. Neither `Debug` nor serialization shows it.
#[derive(Clone, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Secret(String);

impl Secret {
    /// Returns the password.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl FromStr for Secret {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

/// An unquoted value is not a password, and the error must not contain it.
impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        const UNQUOTED: &str = "a password must be in quotes";

        impl Visitor<'_> for Text {
            type Value = Secret;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text in quotes")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Secret, E> {
                Ok(Secret(text.to_owned()))
            }

            fn visit_bool<E: Error>(self, _: bool) -> Result<Secret, E> {
                Err(E::custom(UNQUOTED))
            }

            fn visit_i64<E: Error>(self, _: i64) -> Result<Secret, E> {
                Err(E::custom(UNQUOTED))
            }

            fn visit_u64<E: Error>(self, _: u64) -> Result<Secret, E> {
                Err(E::custom(UNQUOTED))
            }

            fn visit_i128<E: Error>(self, _: i128) -> Result<Secret, E> {
                Err(E::custom(UNQUOTED))
            }

            fn visit_u128<E: Error>(self, _: u128) -> Result<Secret, E> {
                Err(E::custom(UNQUOTED))
            }

            fn visit_f64<E: Error>(self, _: f64) -> Result<Secret, E> {
                Err(E::custom(UNQUOTED))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("(hidden)")
    }
}
