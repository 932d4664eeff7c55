//! Requests, built byte by byte and independent of any implementation.

use std::fmt::Write as _;

/// Topic of requests.
pub(crate) const REQUEST: &str =
    "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";

/// Prefix of every notification topic. No response topic may begin with it.
pub(crate) const RESERVED: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";

/// One of the two clients of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    A,
    B,
}

/// The two forms of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The form of the public specification.
    Spec,
    /// The form of the deployed clients, which send `__protVer`.
    Deployed,
}

impl Dialect {
    pub(crate) const BOTH: [Self; 2] = [Self::Spec, Self::Deployed];

    pub(crate) const fn not_applied(self) -> &'static [u8] {
        match self {
            Self::Spec => b"-1\r\n",
            Self::Deployed => b":-1\r\n",
        }
    }

    pub(crate) const fn deleted(self) -> &'static [u8] {
        match self {
            Self::Spec => b"*2\r\n$6\r\nNOTIFY\r\n$3\r\nDEL\r\n",
            Self::Deployed => b"*2\r\n$6\r\nNOTIFY\r\n$6\r\nDELETE\r\n",
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Spec => "spec",
            Self::Deployed => "deployed",
        }
    }
}

/// A part of a request: the usual value, another value, or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part<T> {
    Usual,
    Other(T),
    None,
}

/// A request, which may be invalid on purpose.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) by: By,
    pub(crate) payload: Vec<u8>,
    /// The key that the request may write.
    pub(crate) key: Option<Vec<u8>>,
    pub(crate) dialect: Dialect,
    /// `__ts`; usually the current time.
    pub(crate) timestamp: Part<String>,
    /// `__ft`
    pub(crate) token: Option<String>,
    pub(crate) qos: u8,
    pub(crate) response_topic: Part<String>,
    /// Correlation data; usually 16 bytes that are unique in the run.
    pub(crate) correlation: Part<Vec<u8>>,
    pub(crate) expiry: Option<u32>,
    /// Further user properties.
    pub(crate) properties: Vec<(String, String)>,
}

impl Request {
    /// Builds a request from client A in the deployed dialect.
    pub(crate) fn from_words(words: &[&[u8]]) -> Self {
        let key = match words {
            [verb, key, ..] if *verb == b"SET" && !key.is_empty() => Some(key.to_vec()),
            _ => None,
        };
        Self { key, ..Self::payload(array(words)) }
    }

    pub(crate) fn payload(payload: Vec<u8>) -> Self {
        Self {
            by: By::A,
            payload,
            key: None,
            dialect: Dialect::Deployed,
            timestamp: Part::Usual,
            token: None,
            qos: 1,
            response_topic: Part::Usual,
            correlation: Part::Usual,
            expiry: Some(60),
            properties: Vec::new(),
        }
    }

    pub(crate) fn by(mut self, by: By) -> Self {
        self.by = by;
        self
    }

    pub(crate) fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    pub(crate) fn writes(mut self, key: Vec<u8>) -> Self {
        self.key = Some(key);
        self
    }

    pub(crate) fn at(mut self, timestamp: impl Into<String>) -> Self {
        self.timestamp = Part::Other(timestamp.into());
        self
    }

    pub(crate) fn untimed(mut self) -> Self {
        self.timestamp = Part::None;
        self
    }

    pub(crate) fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    pub(crate) fn maybe_token(mut self, token: Option<&str>) -> Self {
        self.token = token.map(Into::into);
        self
    }

    pub(crate) fn qos(mut self, qos: u8) -> Self {
        self.qos = qos;
        self
    }

    pub(crate) fn response_topic(mut self, topic: impl Into<String>) -> Self {
        self.response_topic = Part::Other(topic.into());
        self
    }

    pub(crate) fn correlation(mut self, data: impl Into<Vec<u8>>) -> Self {
        self.correlation = Part::Other(data.into());
        self
    }

    pub(crate) fn property(mut self, name: &str, value: &str) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }
}

/// Builds a request with these words from client A, in the deployed dialect.
macro_rules! request {
    ($($word:expr),+ $(,)?) => {
        $crate::request::Request::from_words(&[$(AsRef::<[u8]>::as_ref(&$word)),+])
    };
}

pub(crate) use request;

/// Encodes an array of blob strings.
pub(crate) fn array(words: &[&[u8]]) -> Vec<u8> {
    let mut payload = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        payload.extend(blob(word));
    }
    payload
}

/// Encodes a blob string. A reply with a value has the same form.
pub(crate) fn blob(word: &[u8]) -> Vec<u8> {
    let mut payload = format!("${}\r\n", word.len()).into_bytes();
    payload.extend(word);
    payload.extend(b"\r\n");
    payload
}

/// Parses a header line of the type `kind`: returns its digits, their value, and the remaining
/// bytes.
pub(crate) fn header(bytes: &[u8], kind: u8) -> Option<(&[u8], usize, &[u8])> {
    let rest = bytes.strip_prefix(&[kind])?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    let (digits, line_end) = rest.split_at_checked(end)?;
    let is_number = digits.iter().all(u8::is_ascii_digit);
    let value = std::str::from_utf8(digits).ok().filter(|_| is_number)?.parse().ok()?;
    Some((digits, value, line_end.get(2..)?))
}

/// The notification of a SET.
pub(crate) fn notify_set(value: &[u8]) -> Vec<u8> {
    array(&[b"NOTIFY", b"SET", b"VALUE", value])
}

/// The recommended response topic.
pub(crate) fn response_topic(client_id: &str) -> String {
    format!("clients/{client_id}/services/statestore/_any_/command/invoke/response")
}

/// The topic of notifications for a client and a key; without a key, a filter for all keys.
pub(crate) fn notification_topic(client_id: &str, key: Option<&[u8]>) -> String {
    let key = key.map_or_else(|| "+".to_owned(), hex::encode_upper);
    format!("{RESERVED}/{}/command/notify/{key}", hex::encode_upper(client_id))
}

/// Formats bytes as text on one line, truncated to 120 bytes.
pub(crate) fn show(bytes: &[u8]) -> String {
    const SHOWN: usize = 120;
    if bytes.is_empty() {
        return "(nothing)".into();
    }
    let mut text = bytes.get(..SHOWN).unwrap_or(bytes).escape_ascii().to_string();
    if bytes.len() > SHOWN {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}
