//! Which clients have gone, as mosquitto tells it: by lines of its log, where the broker's file has `log_dest topic`.

use std::net::SocketAddr;
use std::str;

/// How the topics begin on which mosquitto publishes its log.
pub const TOPICS: &str = "$SYS/broker/log/";

/// The parts of the log that name those who have gone: notices, and for takeovers errors.
pub const FILTERS: [&str; 2] = ["$SYS/broker/log/N", "$SYS/broker/log/E"];

/// How such a line ends. None is the end of another, so that no client id can feign another's line.
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

/// The client id in a line of mosquitto's log that says that a client has gone.
///
/// Lines are read from both ends, since a client id may hold blanks or look like a line itself. From version 2.1 on the
/// address stands behind the client id, in brackets; a client id that ends so is cut short.
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
    let who = ENDINGS.iter().find_map(|ending| text.strip_suffix(ending))?;
    let client_id = without_address(who).unwrap_or(who);
    (!client_id.is_empty()).then_some(client_id)
}

fn without_address(who: &str) -> Option<&str> {
    let (client_id, address) = who.strip_suffix(']')?.rsplit_once(" [")?;
    address.parse::<SocketAddr>().is_ok().then_some(client_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_go_is_noticed() {
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
    fn no_ending_is_the_end_of_another() {
        for (at, ending) in ENDINGS.iter().enumerate() {
            let hidden = ENDINGS
                .iter()
                .enumerate()
                .any(|(other_at, other)| other_at != at && other.ends_with(ending));
            assert!(!hidden, "{ending}");
        }
    }

    #[test]
    fn addresses_of_later_versions_are_left_out() {
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
    fn other_lines_say_nothing() {
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
