//! SCAN: the request that lists keys.
//!
//! The public specification does not contain SCAN; its source is the deployed SDK 1.5.0-beta1
//! (`list_keys`).

use core::fmt;

use super::{Encode, encoders};
use crate::buffer::Sink;
use crate::debug::{Key, Value, show};
use crate::resp::put_array;

const VERB: &[u8] = b"SCAN";

/// `SCAN pattern [token]`: requests a page of the keys that match a
/// [pattern](crate::glob::Pattern).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Scan<B> {
    /// The pattern. The store checks it.
    pub pattern: B,
    /// The token of the previous page; `None` for the first page. A token can be used repeatedly.
    pub token: Option<B>,
}

impl<B> Scan<B> {
    /// Converts the container of each argument; `f` must preserve the bytes.
    pub fn map<C>(self, mut f: impl FnMut(B) -> C) -> Scan<C> {
        Scan { pattern: f(self.pattern), token: self.token.map(f) }
    }
}

encoders!([B: AsRef<[u8]>] Scan<B>);

impl<B: AsRef<[u8]>> Encode for Scan<B> {
    fn put(&self, sink: &mut impl Sink) {
        let pattern = self.pattern.as_ref();
        match &self.token {
            None => put_array(&[VERB, pattern], sink),
            Some(token) => put_array(&[VERB, pattern, token.as_ref()], sink),
        }
    }
}

/// Shows a preview of the pattern, and only the length of the token.
impl<B: AsRef<[u8]>> fmt::Debug for Scan<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pattern, token) = (Key(self.pattern.as_ref()), self.token.as_ref());
        show!(f, Scan { pattern, token = token.map(|token| Value(token.as_ref())) })
    }
}
