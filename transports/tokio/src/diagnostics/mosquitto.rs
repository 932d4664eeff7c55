//! Clients that have gone, as mosquitto reports them: by lines of its log, which it publishes if
//! its configuration has `log_dest topic`.

use std::net::SocketAddr;
use std::str;

/// Prefix of the topics on which mosquitto publishes its log.
pub const TOPICS: &str = "$SYS/broker/log/";

/// Topics of the log lines about clients that have gone: notices, and errors for takeovers.
pub const FILTERS: [&str; 2] = ["$SYS/broker/log/N", "$SYS/broker/log/E"];

/// Endings of such lines. None is a suffix of another, so that a client id cannot forge a line
/// about another client.
const ENDINGS: [&str; 17] = [
    " disconnected.",
    " closed its connection.",
    " has exceeded timeout, disconnecting.",
    " already connected, closing old connection.",
    " disconnected, not authorised.",
    " been disconnected by administrative action.",
    " disconnected due to malformed packet.",
    " disconnected due to protocol error.",
    " disconnected due to oversize packet.",
    " disconnected due to oversize payload.",
    " disconnected due to out of memory.",
    " disconnected due to QoS too high or retain not supported.",
    " disconnected due to using not allowed feature (QoS too high, retain not supported, or bad AUTH method).",
    " disconnected: Connection reset by peer.",
    " disconnected: Connection timed out.",
    " disconnected: Broken pipe.",
    " disconnected: No route to host.",
];

/// Parses a line of mosquitto's log. Returns the client id if the line reports that a client has
/// gone.
///
/// Lines are read from both ends, since a client id may contain spaces or look like a line itself.
/// From version 2.1 on, the address follows the client id in brackets; a client id that ends like
/// an address is truncated.
///
/// ```
/// use statestore_tokio::diagnostics::mosquitto::gone;
///
/// assert_eq!(gone(b"1700000000: Client pump 7 closed its connection."), Some("pump 7"));
/// assert_eq!(gone(b"1700000000: New client connected from 127.0.0.1:40312 as pump 7 (p5, c1, k60)."), None);
/// ```
#[must_use]
pub fn gone(line: &[u8]) -> Option<&str> {
    let line = str::from_utf8(line).ok()?;
    let text = match line.split_once(": ") {
        Some((stamp, text)) if stamp.bytes().all(|byte| byte.is_ascii_digit()) => text,
        _ => line,
    };
    let text = text.strip_prefix("Client ")?;
    let client = ENDINGS.iter().find_map(|ending| text.strip_suffix(ending))?;
    let client_id = without_address(client).unwrap_or(client);
    (!client_id.is_empty()).then_some(client_id)
}

fn without_address(client: &str) -> Option<&str> {
    let (client_id, address) = client.strip_suffix(']')?.rsplit_once(" [")?;
    address.parse::<SocketAddr>().is_ok().then_some(client_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ending_yields_the_client_id() {
        for ending in ENDINGS {
            for client_id in ["a", "two words", "x disconnected.", "Client y", "ü", "1: Client z"]
            {
                let line = format!("1700000000: Client {client_id}{ending}");
                assert_eq!(gone(line.as_bytes()), Some(client_id), "{line}");
                let bare = format!("Client {client_id}{ending}");
                assert_eq!(gone(bare.as_bytes()), Some(client_id), "{bare}");
            }
        }
    }

    #[test]
    fn endings_are_not_suffixes_of_each_other() {
        for (at, ending) in ENDINGS.iter().enumerate() {
            let hidden = ENDINGS
                .iter()
                .enumerate()
                .any(|(other_at, other)| other_at != at && other.ends_with(ending));
            assert!(!hidden, "{ending}");
        }
    }

    #[test]
    fn address_after_the_client_id_is_removed() {
        for (line, expected) in [
            ("1: Client a b [127.0.0.1:1883] disconnected.", "a b"),
            ("1: Client a [::1]:5 disconnected.", "a [::1]:5"),
            ("1: Client a [[::1]:5] disconnected.", "a"),
            ("1: Client a [room 5] disconnected.", "a [room 5]"),
        ] {
            assert_eq!(gone(line.as_bytes()), Some(expected), "{line}");
        }
    }

    #[test]
    fn other_lines_yield_no_client_id() {
        for line in [
            "1: New client connected from ::1:5 as a (p5, c1, k60).",
            "1: No will message specified.",
            "1: Client a disconnected",
            "1: Client a disconnected. ",
            "1: client a disconnected.",
            "1: Client  disconnected.",
            "1: Client disconnected.",
            "x1: Client a disconnected.",
            "1: 2: Client a disconnected.",
            "1: Outgoing messages are being dropped for client a.",
            "",
        ] {
            assert_eq!(gone(line.as_bytes()), None, "{line}");
        }
        assert_eq!(gone(b"1: Client \xff disconnected."), None);
    }
}
