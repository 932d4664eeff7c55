//! Properties of a received packet, owned.

use core::fmt;

use bytes::Bytes;

use crate::property::{IdSet, Properties, Property};

/// The properties of a received packet, as the bytes that they were.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PropertyBytes {
    bytes: Bytes,
    ids: IdSet,
}

impl PropertyBytes {
    pub(super) fn copy(properties: &Properties<'_>) -> Self {
        let bytes = Bytes::copy_from_slice(properties.as_bytes());
        Self { bytes, ids: properties.ids() }
    }

    /// The properties.
    #[must_use]
    pub fn get(&self) -> Properties<'_> {
        Properties::from_validated(&self.bytes, self.ids)
    }

    /// Reason String.
    #[must_use]
    pub fn reason_string(&self) -> Option<&str> {
        self.get().find(|property| match property {
            Property::ReasonString(text) => Some(text),
            _ => None,
        })
    }

    /// Server Reference.
    #[must_use]
    pub fn server_reference(&self) -> Option<&str> {
        self.get().find(|property| match property {
            Property::ServerReference(text) => Some(text),
            _ => None,
        })
    }

    /// Authentication Data.
    #[must_use]
    pub fn authentication_data(&self) -> Option<&[u8]> {
        self.get().find(|property| match property {
            Property::AuthenticationData(data) => Some(data),
            _ => None,
        })
    }

    /// User properties, in order.
    pub fn user(&self) -> impl Iterator<Item = (&str, &str)> {
        self.get().user()
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Values are omitted.
impl fmt::Debug for PropertyBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{} bytes of properties>", self.bytes.len())
    }
}
