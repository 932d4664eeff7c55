//! The access rules that apply before any policy.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use statestore_broker::{Acl, SenderDetails};
use statestore_mqtt::Reason;
use statestore_policy::Action;
use statestore_proto::message::KeyPreview;
use statestore_proto::topic::{REQUEST, RESERVED};
use statestore_proto::transport::{Access, Rights};
use tracing::{field, warn};

use crate::login::client_ids::is_one_level;

/// The client id of the store.
pub(crate) const STORE_CLIENT_ID: &str = "$statestore";

/// Prefix of the topics that belong to one client. The next level is the client id.
const CLIENTS: &str = "clients/";

/// Prefix of the topics to which only the store publishes.
const STORE_TOPICS: &str = "clients/statestore/";

/// Characters of a topic in the log.
const TOPIC_SHOWN_MAX: usize = 128;

/// First level of the request topic.
const REQUEST_LEVEL: &str = "statestore/";

/// Rules for every client, regardless of other permissions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedRules;

/// Returns why no policy can allow an action, if so. The broker applies these rules before the
/// policy.
///
/// ```
/// use statestore_server::fixed_rule;
/// use statestore_server::policy::Action;
///
/// assert!(fixed_rule("lamp", &Action::Publish("clients/statestore/x")).is_some());
/// assert_eq!(fixed_rule("lamp", &Action::Publish("lamps/1")), None);
/// ```
#[must_use]
pub fn fixed_rule(client_id: &str, action: &Action<'_>) -> Option<&'static str> {
    match action {
        Action::Publish(topic) if !is_publish_allowed(client_id, topic, None) => {
            Some("only the store publishes to its topics")
        }
        Action::Subscribe(filter) if FixedRules.may_subscribe(client_id, filter).is_err() => {
            Some("only the store subscribes to requests")
        }
        _ => None,
    }
}

/// Rights to everything.
struct AllKeys;

impl Rights for AllKeys {
    fn allow_key(&self, _: Access, _: &[u8]) -> bool {
        true
    }
}

/// Details of a client in this process, which may do everything.
static UNRESTRICTED: LazyLock<SenderDetails> = LazyLock::new(|| Arc::new(AllKeys));

/// Returns the rights of the sender of a message, if these are its [details](Acl::details).
pub(crate) fn rights(details: &(dyn Any + Send + Sync)) -> Option<&dyn Rights> {
    match details.downcast_ref::<statestore_policy::Rights>() {
        Some(rights) => Some(rights),
        None => details.downcast_ref::<AllKeys>().map(|all| all as &dyn Rights),
    }
}

impl Acl for FixedRules {
    fn details(&self) -> Option<SenderDetails> {
        Some(Arc::clone(&UNRESTRICTED))
    }

    fn may_connect(&self, client_id: &str) -> Result<(), Reason> {
        match is_one_level(client_id) {
            true => Ok(()),
            false => Err(Reason::CLIENT_IDENTIFIER_NOT_VALID),
        }
    }

    fn may_publish(
        &self,
        client_id: &str,
        topic: &str,
        response_topic: Option<&str>,
    ) -> Result<(), Reason> {
        if !is_publish_allowed(client_id, topic, response_topic) {
            return Err(Reason::NOT_AUTHORIZED);
        }
        if is_misspelt_request(topic) {
            let client_id = field::debug(KeyPreview(client_id.as_bytes()));
            // Log the whole topic, since the mistake may be at the end.
            let topic = field::debug(topic.chars().take(TOPIC_SHOWN_MAX).collect::<String>());
            warn!(client_id, topic, "message reaches no store: requests must be sent to {REQUEST}");
        }
        Ok(())
    }

    fn may_subscribe(&self, _: &str, filter: &str) -> Result<(), Reason> {
        if filter == REQUEST { Err(Reason::NOT_AUTHORIZED) } else { Ok(()) }
    }

    fn may_receive(&self, client_id: &str, topic: &str) -> bool {
        topic != REQUEST && is_own_topic(client_id, topic)
    }
}

fn is_publish_allowed(client_id: &str, topic: &str, response_topic: Option<&str>) -> bool {
    // A client must not direct responses to another client: with a small request it could send a
    // large value there.
    let names_another = response_topic.is_some_and(|topic| !is_own_topic(client_id, topic));
    !topic.starts_with(STORE_TOPICS) && !names_another
}

/// Returns whether a topic is probably meant to be that of requests. Its client receives no
/// response, and no error if another client has subscribed to the topic.
fn is_misspelt_request(topic: &str) -> bool {
    let level = topic.trim_start_matches('/').get(..REQUEST_LEVEL.len());
    topic != REQUEST && level.is_some_and(|level| level.eq_ignore_ascii_case(REQUEST_LEVEL))
}

/// Returns whether a topic belongs to no other client. The level after `clients/` is the client id,
/// or the client id in Base16 as deployed Go clients use it. For topics that the protocol reserves
/// for the store this returns true: the store checks them, and disconnects a client with such a
/// response topic. The rest of `clients/statestore/` belongs to a client named `statestore`.
fn is_own_topic(client_id: &str, topic: &str) -> bool {
    let Some(below) = topic.strip_prefix(CLIENTS) else { return true };
    let ends = |rest: &str| rest.is_empty() || rest.starts_with('/');
    topic.starts_with(RESERVED)
        || below.strip_prefix(client_id).is_some_and(ends)
        || below.split('/').next().is_some_and(|level| is_base16(client_id, level))
}

/// Returns whether a topic belongs to this client, so that no other client receives its messages.
pub(crate) fn is_private_topic(client_id: &str, topic: &str) -> bool {
    topic.starts_with(CLIENTS) && !topic.starts_with(RESERVED) && is_own_topic(client_id, topic)
}

/// Returns whether `text` is `client_id` in uppercase Base16.
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
    fn topics_that_resemble_the_request_topic_are_misspelt() {
        for topic in [
            &format!("/{REQUEST}"),
            &format!("{REQUEST}/"),
            &REQUEST.to_ascii_lowercase(),
            "statestore/v1/command/invoke",
            "StateStore/",
        ] {
            assert!(is_misspelt_request(topic), "{topic}");
        }
        for topic in
            [REQUEST, "", "statestore", "statestores/v1", "a/statestore/v1", "st\u{e4}testore/"]
        {
            assert!(!is_misspelt_request(topic), "{topic}");
        }
    }

    #[test]
    fn topics_below_a_client_id_belong_to_that_client() {
        for (client_id, topic, expected) in [
            ("a", "clients/a/response", true),
            ("a", "clients/a", true),
            ("a", "clients/ab/response", false),
            ("a", "clients/b/response", false),
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
            assert_eq!(is_own_topic(client_id, topic), expected, "{client_id} {topic}");
        }
    }

    #[test]
    fn client_ids_are_one_level_of_a_topic() {
        for (client_id, expected) in [
            ("a", true),
            ("a-b.c_d", true),
            ("a/b", false),
            ("/", false),
            ("a+\u{fc}", true),
            ("a/", false),
        ] {
            assert_eq!(FixedRules.may_connect(client_id).is_ok(), expected, "{client_id}");
        }
    }

    #[test]
    fn requests_are_private_and_responses_cannot_be_redirected() {
        let rules = FixedRules;
        assert!(!rules.may_receive("a", REQUEST));
        assert_eq!(rules.may_subscribe("a", REQUEST), Err(Reason::NOT_AUTHORIZED));
        assert_eq!(rules.may_subscribe("a", "#"), Ok(()));
        let refused = Err(Reason::NOT_AUTHORIZED);
        assert_eq!(rules.may_publish("a", REQUEST, Some("clients/a/r")), Ok(()));
        assert_eq!(rules.may_publish("a", REQUEST, Some("clients/b/r")), refused);
        assert_eq!(
            rules.may_publish("a", "clients/b/x", None),
            Ok(()),
            "other services publish responses"
        );
        assert_eq!(rules.may_publish("a", &format!("{RESERVED}/x"), None), refused);
    }
}
