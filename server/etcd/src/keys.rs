//! Keys below the prefix.
//!
//! | Key | Value |
//! |---|---|
//! | `fmt` | version of the layout |
//! | `head` | last transaction of the chain |
//! | `leader` | name and address of the leader; attached to its lease |
//! | `k/` key | record of an entry |
//! | `w/` length of the key (4 bytes, big-endian) key client | record of a registration |
//! | `a/` number (16 hexadecimal digits) | records of the responses of one transaction |
//! | `s/` name | status of a standby; attached to its lease |

const FORMAT: &[u8] = b"fmt";
const HEAD: &[u8] = b"head";
const LEADER: &[u8] = b"leader";
const VALUE: &[u8] = b"k/";
const WATCH: &[u8] = b"w/";
const RESPONSES: &[u8] = b"a/";
const STANDBY: &[u8] = b"s/";
/// End of the range of all standbys.
const STANDBY_END: &[u8] = b"s0";

/// Fixed number of hexadecimal digits, so that keys are ordered like their numbers.
const DIGITS: usize = 16;

/// The keys of one store.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: Box<[u8]>,
}

/// A parsed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    Format,
    Head,
    Leader,
    Value { key: &'a [u8] },
    Watch { key: &'a [u8], client: &'a str },
    Responses { number: u64 },
    Standby { name: &'a str },
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.as_bytes().into() }
    }

    pub(crate) fn prefix(&self) -> String {
        String::from_utf8_lossy(&self.prefix).into_owned()
    }

    /// Returns the range of all keys of the store: the first key, and the end.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let mut end = self.prefix.to_vec();
        // The prefix ends with a slash, which is not the greatest byte.
        if let Some(last) = end.last_mut() {
            *last = last.saturating_add(1);
        }
        (self.prefix.to_vec(), end)
    }

    pub(crate) fn format(&self) -> Vec<u8> {
        self.join(&[FORMAT])
    }

    pub(crate) fn head(&self) -> Vec<u8> {
        self.join(&[HEAD])
    }

    pub(crate) fn leader(&self) -> Vec<u8> {
        self.join(&[LEADER])
    }

    pub(crate) fn value(&self, key: &[u8]) -> Vec<u8> {
        self.join(&[VALUE, key])
    }

    /// `None` if the length of the key does not fit into 4 bytes.
    pub(crate) fn watch(&self, key: &[u8], client: &str) -> Option<Vec<u8>> {
        let len = u32::try_from(key.len()).ok()?;
        Some(self.join(&[WATCH, &len.to_be_bytes(), key, client.as_bytes()]))
    }

    pub(crate) fn responses(&self, number: u64) -> Vec<u8> {
        self.join(&[RESPONSES, format!("{number:0DIGITS$x}").as_bytes()])
    }

    pub(crate) fn standby(&self, name: &str) -> Vec<u8> {
        self.join(&[STANDBY, name.as_bytes()])
    }

    /// Returns the range of all standbys: the first key, and the end.
    pub(crate) fn standbys(&self) -> (Vec<u8>, Vec<u8>) {
        (self.join(&[STANDBY]), self.join(&[STANDBY_END]))
    }

    /// Parses a key; `None` if no store writes such a key.
    pub(crate) fn parse<'a>(&self, key: &'a [u8]) -> Option<Name<'a>> {
        let inside = key.strip_prefix(&*self.prefix)?;
        match inside {
            FORMAT => return Some(Name::Format),
            HEAD => return Some(Name::Head),
            LEADER => return Some(Name::Leader),
            _ => {}
        }
        if let Some(key) = inside.strip_prefix(VALUE) {
            // A store rejects empty keys.
            return (!key.is_empty()).then_some(Name::Value { key });
        }
        if let Some(digits) = inside.strip_prefix(RESPONSES) {
            return number(digits).map(|number| Name::Responses { number });
        }
        if let Some(name) = inside.strip_prefix(STANDBY) {
            return core::str::from_utf8(name).ok().map(|name| Name::Standby { name });
        }
        let (len, rest) = inside.strip_prefix(WATCH)?.split_first_chunk()?;
        let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
        let (key, client) = rest.split_at_checked(len)?;
        Some(Name::Watch { key, client: core::str::from_utf8(client).ok()? })
    }

    fn join(&self, parts: &[&[u8]]) -> Vec<u8> {
        [&[&*self.prefix], parts].concat().concat()
    }
}

/// Parses a number in exactly the form of [`Keys::responses`].
fn number(digits: &[u8]) -> Option<u64> {
    let is_lower = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != DIGITS || !digits.iter().all(is_lower) {
        return None;
    }
    u64::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys() -> Keys {
        Keys::new("/ss/shop/")
    }

    fn written(name: Name<'_>) -> Vec<u8> {
        match name {
            Name::Format => keys().format(),
            Name::Head => keys().head(),
            Name::Leader => keys().leader(),
            Name::Value { key } => keys().value(key),
            Name::Watch { key, client } => keys().watch(key, client).unwrap(),
            Name::Responses { number } => keys().responses(number),
            Name::Standby { name } => keys().standby(name),
        }
    }

    #[test]
    fn keys_have_the_documented_form() {
        assert_eq!(keys().value(b"a/b"), b"/ss/shop/k/a/b");
        assert_eq!(keys().responses(255), b"/ss/shop/a/00000000000000ff");
        assert_eq!(keys().watch(b"on", "lamp").unwrap(), b"/ss/shop/w/\0\0\0\x02onlamp");
        assert_eq!(keys().range(), (b"/ss/shop/".to_vec(), b"/ss/shop0".to_vec()));
    }

    proptest! {
        #[test]
        fn parsed_keys_equal_the_written_ones(key: Vec<u8>, client: String, number: u64) {
            let names = [
                Name::Format,
                Name::Head,
                Name::Leader,
                Name::Value { key: &key },
                Name::Watch { key: &key, client: &client },
                Name::Responses { number },
                Name::Standby { name: &client },
            ];
            let (first, end) = keys().range();
            for name in names {
                let bytes = written(name);
                prop_assert!(first < bytes && bytes < end);
                // A store rejects empty keys.
                let is_valid = name != Name::Value { key: b"" };
                prop_assert_eq!(keys().parse(&bytes), is_valid.then_some(name));
            }
        }

        #[test]
        fn any_bytes_parse_as_at_most_one_key(inside: Vec<u8>, place in 0..5_usize) {
            let head: &[u8] = [b"".as_slice(), VALUE, WATCH, RESPONSES, STANDBY][place];
            let key = [b"/ss/shop/", head, &inside].concat();
            if let Some(name) = keys().parse(&key) {
                prop_assert_eq!(written(name), key);
            }
            prop_assert_eq!(keys().parse(&inside), None);
        }
    }
}
