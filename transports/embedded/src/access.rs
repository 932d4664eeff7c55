//! Who may do what: the rules that hold before any policy.

use statestore_mqtt::Reason;
use statestore_mqtt::broker::Rules;
use statestore_proto::topic::{REQUEST, RESERVED};

/// The client id of the store itself.
pub(crate) const STORE: &str = "$statestore";

/// Below it, and below the id of a client, is what is that client's alone.
const CLIENTS: &str = "clients/";

/// Below it publishes nobody but the store.
const OWN: &str = "clients/statestore/";

/// What holds for everybody, whatever else is allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRules;

impl Rules for FixedRules {
    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        // Nobody has answers sent to others: a small request for a large value would hit them.
        let names_another = response_topic.is_some_and(|topic| !is_own(client_id, topic));
        if topic.starts_with(OWN) || names_another {
            return Err(Reason::NOT_AUTHORIZED);
        }
        Ok(())
    }

    fn may_subscribe(&self, _: &str, filter: &str) -> Result<(), Reason> {
        if filter == REQUEST { Err(Reason::NOT_AUTHORIZED) } else { Ok(()) }
    }

    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != REQUEST && is_own(client_id, topic)
    }
}

/// Whether a topic is no other client's: below `clients/` stands the client id, or its Base16 as deployed Go clients have it.
/// Those that the protocol keeps for the store are for the store to judge, which disconnects whoever wants answers there; the
/// rest of `clients/statestore/` is another client's to whoever is not `statestore`.
fn is_own(client_id: &str, topic: &str) -> bool {
    let Some(below) = topic.strip_prefix(CLIENTS) else { return true };
    let ends = |rest: &str| rest.is_empty() || rest.starts_with('/');
    topic.starts_with(RESERVED)
        || below.strip_prefix(client_id).is_some_and(ends)
        || below.split('/').next().is_some_and(|level| is_base16(client_id, level))
}

/// Whether a topic is below a client's own level, where nobody else hears it.
pub(crate) fn is_private(client_id: &str, topic: &str) -> bool {
    topic.starts_with(CLIENTS) && !topic.starts_with(RESERVED) && is_own(client_id, topic)
}

/// Whether `text` is `client_id` in Base16, in capital letters.
fn is_base16(client_id: &str, text: &str) -> bool {
    let digit =
        |nibble: u8| char::from_digit(nibble.into(), 16).map(|digit| digit.to_ascii_uppercase());
    let digits = client_id.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte & 0x0f)]);
    text.len() == 2 * client_id.len() && digits.eq(text.chars().map(Some))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_a_client_is_its_own() {
        for (client_id, topic, expected) in [
            ("a", "clients/a/response", true),
            ("a", "clients/a", true),
            ("a", "clients/ab/response", false),
            ("a", "clients/b/response", false),
            ("a/b", "clients/a/b/response", true),
            ("a", "elsewhere/b", true),
            ("client", "clients/636C69656E74/response", true),
            ("client", "clients/636C69656E7/response", false),
            ("client", "clients/636c69656e74/response", false),
            ("\u{e9}", "clients/C3A9/response", true),
            ("a", "clients", true),
            ("a", &format!("{RESERVED}/x"), true),
            ("a", "clients/statestore/x", false),
            ("a", "clients/statestore/v1/x", false),
        ] {
            assert_eq!(is_own(client_id, topic), expected, "{client_id} {topic}");
        }
    }

    #[test]
    fn nobody_hears_requests_or_has_answers_sent_to_others() {
        let rules = FixedRules;
        assert!(!rules.may_receive("a", REQUEST));
        assert_eq!(rules.may_subscribe("a", REQUEST), Err(Reason::NOT_AUTHORIZED));
        assert_eq!(rules.may_subscribe("a", "#"), Ok(()));
        let refused = Err(Reason::NOT_AUTHORIZED);
        assert_eq!(rules.may_publish("a", REQUEST, Some("clients/a/r")), Ok(()));
        assert_eq!(rules.may_publish("a", REQUEST, Some("clients/b/r")), refused);
        assert_eq!(rules.may_publish("a", "clients/b/x", None), Ok(()), "other services answer");
        assert_eq!(rules.may_publish("a", &format!("{RESERVED}/x"), None), refused);
    }
}
