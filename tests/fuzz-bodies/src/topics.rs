//! Topics.

use statestore_proto::topic::{
    NotificationFilter, NotificationTopic, ParsedNotificationTopic, ResponseTopic, TopicError,
    check_response,
};

use super::naive;

const LIMIT: usize = 65_535;
const REQUEST: &str = "statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8/command/invoke";
const STORE: &str = "clients/statestore/v1/FA9AE35F-2F64-47CD-9BFF-08E2B32A0FE8";
const ANSWER: &str = "/services/statestore/_any_/command/invoke/response";

/// Oracle: naive rules over strings and path segments predict which topics can be built, parsed and
/// allowed. A built topic can be parsed again and uses upper-case Base16. Building fails exactly if
/// the formatted topic breaks a rule.
///
/// Input: its first byte selects its form, so a committed input keeps its meaning when forms are
/// added:
///
/// | Input | Meaning |
/// |---|---|
/// | `t` topic | a topic as received |
/// | `b` client id, newline, key | topics to build; the key may be any bytes |
/// | `l` digits `:` digits | a client id and a key of these lengths, to reach the limits |
///
/// Anything else is a topic as received, first byte included.
pub fn topics(data: &[u8]) {
    match data.split_first() {
        Some((b't', rest)) => check_received(&String::from_utf8_lossy(rest)),
        Some((b'b', rest)) => {
            let mut parts = rest.splitn(2, |byte| *byte == b'\n');
            let client_id = String::from_utf8_lossy(parts.next().unwrap_or_default());
            check_built(&client_id, parts.next().unwrap_or_default());
        }
        Some((b'l', rest)) => {
            let mut lens = rest.splitn(2, |byte| *byte == b':').map(length);
            let (client_id, key) = (lens.next().unwrap_or(0), lens.next().unwrap_or(0));
            check_built(&"c".repeat(client_id), &vec![b'k'; key]);
        }
        _ => check_received(&String::from_utf8_lossy(data)),
    }
}

/// A length around the limit of a topic. Greater lengths only cost time.
fn length(digits: &[u8]) -> usize {
    let number = naive::number(digits).unwrap_or(0).min(70_000);
    usize::try_from(number).unwrap_or(0)
}

fn check_received(topic: &str) {
    let verdict = check_response(topic);
    assert_eq!(verdict.is_ok(), may_answer_to(topic), "{verdict:?}");
    match verdict {
        Ok(()) => {}
        Err(TopicError::Empty) => assert!(topic.is_empty()),
        Err(TopicError::TooLong) => assert!(topic.len() > LIMIT),
        Err(TopicError::Wildcard) => assert!(topic.contains(['+', '#', '\0'])),
        Err(TopicError::RequestTopic) => assert_eq!(topic, REQUEST),
        Err(TopicError::Reserved) => assert!(topic.starts_with(STORE)),
        Err(TopicError::BrokersOwn) => assert!(topic.starts_with('$')),
        Err(TopicError::TooManyLevels) => assert!(topic.matches('/').count() >= 200),
        Err(other) => panic!("no rule for {other:?}"),
    }

    let expected = response_client(topic).filter(|_| may_answer_to(topic));
    assert_eq!(ResponseTopic::parse(topic).map(|response| response.client_id()), expected);
    if let Some(client_id) = expected {
        check_built(client_id, b"key");
    }

    let received = ParsedNotificationTopic::parse(topic);
    let expected = notification_parts(topic);
    assert_eq!(received.is_some(), expected.is_some());
    if let (Some(received), Some((client_id, key))) = (received, expected) {
        check_parts(&received, &client_id, &key);
    }
}

fn check_built(client_id: &str, key: &[u8]) {
    let text = format!("clients/{client_id}{ANSWER}");
    let response = ResponseTopic::new(client_id);
    assert_eq!(response.is_ok(), !client_id.is_empty() && may_answer_to(&text), "{response:?}");
    if let Ok(response) = response {
        assert_eq!((response.to_string(), response.encoded_len()), (text.clone(), text.len()));
        assert_eq!(ResponseTopic::parse(&text), Some(response));
        assert_eq!(check_response(&text), Ok(()));
    }

    let head = format!("{STORE}/{}/command/notify/", hex::encode_upper(client_id));
    let room = LIMIT.saturating_sub(head.len()) / 2;
    assert_eq!(NotificationTopic::key_len_max(client_id), room);
    let filter = NotificationFilter::new(client_id);
    assert_eq!(filter.is_ok(), !client_id.is_empty() && room > 0);
    if let Ok(filter) = filter {
        assert_eq!(filter.to_string(), format!("{head}+"));
        assert_eq!(filter.encoded_len(), head.len() + 1);
    }

    let notification = NotificationTopic::new(client_id, key);
    let fits = !client_id.is_empty() && !key.is_empty() && key.len() <= room;
    assert_eq!(notification.is_ok(), fits, "{notification:?}");
    let text = head + &hex::encode_upper(key);
    assert_eq!(
        ParsedNotificationTopic::parse(&text).is_some(),
        fits,
        "read exactly when it may be built"
    );
    let Ok(notification) = notification else { return };
    assert_eq!(notification.to_string(), text);
    assert_eq!(notification.encoded_len(), text.len());
    assert_eq!(check_response(&text), Err(TopicError::Reserved), "no reply goes there");
    let received = ParsedNotificationTopic::parse(&text).expect("what is built is read");
    check_parts(&received, client_id.as_bytes(), key);

    let digits = text.strip_prefix(STORE).unwrap_or_default();
    let lower = format!("{STORE}{}", digits.to_ascii_lowercase());
    let received = ParsedNotificationTopic::parse(&lower).expect("lower-case digits are read");
    check_parts(&received, client_id.as_bytes(), key);
}

fn check_parts(received: &ParsedNotificationTopic<'_>, client_id: &[u8], key: &[u8]) {
    let mut out = vec![0; client_id.len().max(key.len()) + 1];
    assert_eq!(received.decode_client_id(&mut out), Some(client_id));
    assert_eq!(received.decode_key(&mut out), Some(key));
    assert_eq!((received.client_id_len(), received.key_len()), (client_id.len(), key.len()));
    assert_eq!(received.key(), key);
    assert_eq!(received.decode_client_id(&mut out[..client_id.len() - 1]), None);
    assert_eq!(received.decode_key(&mut out[..key.len() - 1]), None);

    let text = String::from_utf8_lossy(client_id);
    let others = [text.to_uppercase(), text.to_lowercase(), format!("{text}0"), String::new()];
    for other in others.iter().map(String::as_str).chain([text.as_ref()]) {
        assert_eq!(received.is_for(other), other.as_bytes() == client_id, "{other:?}");
    }
}

/// The rule for response topics.
fn may_answer_to(topic: &str) -> bool {
    (1..=LIMIT).contains(&topic.len())
        && topic.chars().all(|char| char != '+' && char != '#' && char != '\0')
        && topic != REQUEST
        && !topic.starts_with(STORE)
        && !topic.starts_with('$')
        && topic.split('/').count() <= 200
}

/// The client id of a response topic of the recommended form.
fn response_client(topic: &str) -> Option<&str> {
    let (from, to) = ("clients/".len(), topic.len().checked_sub(ANSWER.len())?);
    let client_id = topic.get(from..to)?;
    (!client_id.is_empty() && topic.starts_with("clients/") && topic.ends_with(ANSWER))
        .then_some(client_id)
}

/// The client id and the key of a notification topic.
fn notification_parts(topic: &str) -> Option<(Vec<u8>, Vec<u8>)> {
    let segments: Vec<&str> = topic.split('/').collect();
    let [a, b, c, d, client_id, e, f, key] = segments.as_slice() else { return None };
    let fixed = [*a, *b, *c, *d].join("/") == STORE && [*e, *f] == ["command", "notify"];
    if !fixed || topic.len() > LIMIT {
        return None;
    }
    Some((bytes_of(client_id)?, bytes_of(key)?))
}

fn bytes_of(digits: &str) -> Option<Vec<u8>> {
    hex::decode(digits).ok().filter(|bytes| !bytes.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn may_answer_to_accepts_only_valid_response_topics() {
        assert!(may_answer_to("a") && may_answer_to(&"a".repeat(LIMIT)));
        for wrong in [
            "",
            "a/+",
            "a/#",
            "a\0",
            REQUEST,
            STORE,
            &format!("{STORE}x/y"),
            &"a".repeat(LIMIT + 1),
        ] {
            assert!(!may_answer_to(wrong), "{wrong}");
        }
        assert_eq!(response_client(&format!("clients/c/d{ANSWER}")), Some("c/d"));
        assert_eq!(response_client(&format!("clients/{ANSWER}")), None);
        assert_eq!(response_client(ANSWER), None);
    }

    #[test]
    fn base16_digits_and_notification_topics_are_parsed_exactly() {
        assert_eq!(hex::encode_upper("client-id1"), "636C69656E742D696431");
        assert_eq!(bytes_of("0aFF"), Some(vec![10, 255]));
        assert_eq!((bytes_of(""), bytes_of("0"), bytes_of("0g")), (None, None, None));
        let topic = format!("{STORE}/6331/command/notify/6B");
        assert_eq!(notification_parts(&topic), Some((b"c1".to_vec(), b"k".to_vec())));
        assert_eq!(notification_parts(&format!("{topic}/6B")), None);
        assert_eq!(notification_parts(&topic.replace("notify", "invoke")), None);
    }
}
