//! Topics of notifications and responses, and parsing of received topics.

use statestore_proto::topic::{
    NotificationFilter, NotificationTopic, ParsedNotificationTopic, ResponseTopic, TopicError,
    check_response,
};

use super::vectors;
use crate::support::same;

#[test]
fn notification_topics_are_built_as_in_the_file() {
    vectors("topics-notification.txt").run(9, |case| {
        let (client, key) = (case.string("client")?, case.bytes("key")?);
        let topic = NotificationTopic::new(&client, &key).map_err(|error| error.to_string())?;
        let text = topic.to_string();
        same("topic", &text.as_str(), &case.text("topic")?)?;
        same("length", &topic.encoded_len(), &text.len())?;
        let filter = NotificationFilter::new(&client).map_err(|error| error.to_string())?;
        same("filter", &filter.to_string().as_str(), &case.text("filter")?)?;
        let received = ParsedNotificationTopic::parse(&text).ok_or("not read back")?;
        same("for the client", &received.is_for(&client), &true)?;
        same("for another", &received.is_for(&format!("{client}x")), &false)?;
        same("key", &received.key(), &key)
    });
}

#[test]
fn response_topics_are_allowed_or_forbidden_as_in_the_file() {
    vectors("topics-response.txt").run(30, |case| {
        let topic = case.string("topic")?;
        let found = match check_response(&topic) {
            Ok(()) => "allowed",
            Err(TopicError::Empty) => "empty",
            Err(TopicError::Wildcard) => "wildcard",
            Err(TopicError::RequestTopic) => "request-topic",
            Err(TopicError::Reserved) => "reserved",
            Err(TopicError::BrokersOwn) => "brokers-own",
            Err(TopicError::TooManyLevels) => "too-many-levels",
            Err(_) => "another problem",
        };
        same("check", &found, &case.text("result")?)?;
        let client = case.optional_bytes("client")?;
        let parsed = ResponseTopic::parse(&topic);
        let found = parsed.map(|parsed| parsed.client_id().as_bytes().to_vec());
        same("client", &found, &client)?;
        match parsed {
            Some(parsed) => same("written", &parsed.to_string(), &topic),
            None => Ok(()),
        }
    });
}

#[test]
fn received_topics_contain_the_client_and_key_in_the_file() {
    vectors("topics-received.txt").run(22, |case| {
        let topic = case.string("topic")?;
        let expected = case.optional_bytes("client")?.zip(case.optional_bytes("key")?);
        let Some(received) = ParsedNotificationTopic::parse(&topic) else {
            return same("parse", &None, &expected);
        };
        let mut room = [0; 64];
        let client = received.decode_client_id(&mut room).ok_or("no room for the client")?.to_vec();
        let key = received.decode_key(&mut room).ok_or("no room for the key")?.to_vec();
        same("allocated key", &received.key(), &key)?;
        let lens = (received.client_id_len(), received.key_len());
        same("lengths", &lens, &(client.len(), key.len()))?;
        let short = received.decode_key(&mut room[..key.len() - 1]).is_none();
        same("refused when too small", &short, &true)?;
        same("parse", &Some((client, key)), &expected)
    });
}

#[test]
fn longest_topics_have_exactly_the_length_that_mqtt_allows() {
    let client = "client-id1";
    let most = NotificationTopic::key_len_max(client);
    assert!((32_000..32_768).contains(&most), "about 32 KiB, found {most}");
    let fits = NotificationTopic::new(client, &vec![b'k'; most]).unwrap().encoded_len();
    assert!((65_534..=65_535).contains(&fits), "found {fits}");
    let longer = vec![b'k'; most + 1];
    assert_eq!(NotificationTopic::new(client, &longer), Err(TopicError::TooLong));

    let room = 65_535 - ResponseTopic::new("c").unwrap().to_string().len() + 1;
    assert_eq!(ResponseTopic::new(&"c".repeat(room)).unwrap().to_string().len(), 65_535);
    assert_eq!(ResponseTopic::new(&"c".repeat(room + 1)), Err(TopicError::TooLong));
    assert_eq!(check_response(&"t".repeat(65_535)), Ok(()));
    assert_eq!(check_response(&"t".repeat(65_536)), Err(TopicError::TooLong));

    let full = NotificationTopic::new(client, &vec![b'k'; most]).unwrap().to_string();
    assert!(ParsedNotificationTopic::parse(&full).is_some());
    assert!(ParsedNotificationTopic::parse(&format!("{full}6B")).is_none());
    let fixed = NotificationFilter::new("c").unwrap().to_string().len() - 3;
    let widest = (65_535 - fixed - 2) / 2;
    assert!(NotificationFilter::new(&"c".repeat(widest)).is_ok(), "room for a key of one byte");
    assert!(NotificationFilter::new(&"c".repeat(widest + 1)).is_err(), "no room for a key");
}
