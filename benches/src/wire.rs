//! A simple encoder, the oracle of all others.

use statestore_proto::resp::Frame;

/// A RESP3 message in the subset of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub enum Wire<'a> {
    /// A request or a notification.
    Array(Vec<&'a [u8]>),
    /// A reply.
    Frame(Frame<&'a [u8]>),
}

impl Wire<'_> {
    /// The payload.
    #[must_use]
    pub fn payload(&self) -> Vec<u8> {
        match self {
            Self::Array(elements) => {
                let mut out = format!("*{}\r\n", elements.len()).into_bytes();
                for element in elements {
                    out.extend(blob(element));
                }
                out
            }
            Self::Frame(Frame::Simple(text)) => [b"+", *text, b"\r\n"].concat(),
            Self::Frame(Frame::Error(text)) => [b"-ERR ", *text, b"\r\n"].concat(),
            Self::Frame(Frame::Integer(number)) => format!(":{number}\r\n").into_bytes(),
            Self::Frame(Frame::Blob(value)) => blob(value),
            Self::Frame(Frame::Null) => b"$-1\r\n".to_vec(),
        }
    }
}

fn blob(bytes: &[u8]) -> Vec<u8> {
    [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}
