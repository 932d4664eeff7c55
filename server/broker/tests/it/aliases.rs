//! Topic aliases in messages to clients.

use super::*;

/// Receives messages and returns the topic and the alias of each.
fn receive_topics(net: &mut Net, id: ConnectionId) -> Vec<(String, Option<String>)> {
    let messages = net.receive_messages(id).into_iter();
    messages
        .map(|message| {
            let alias = message.properties.into_iter().find(|text| text.starts_with("TopicAlias"));
            (message.topic, alias)
        })
        .collect()
}

fn aliased(topic: &str, alias: u16) -> (String, Option<String>) {
    (topic.into(), Some(format!("TopicAlias({alias})")))
}

fn plain(topic: &str) -> (String, Option<String>) {
    (topic.into(), None)
}

/// Connects a subscriber to all topics with these options, and a publisher.
fn connect_pair(net: &mut Net, options: ConnectOptions<'_>) -> [ConnectionId; 2] {
    let to = net.connect("to", options);
    net.subscribe(to, "#", Qos::AtLeastOnce);
    [to, net.connect("from", CLEAN)]
}

fn with_properties(properties: Properties<'_>) -> ConnectOptions<'_> {
    ConnectOptions { properties, ..CLEAN }
}

#[test]
fn first_topics_get_aliases() {
    let mut net = Net::default();
    let [to, from] = connect_pair(&mut net, with_properties(&[Property::TopicAliasMaximum(2)]));
    for topic in ["first", "second", "first", "third", "abc", "second", "third"] {
        net.publish(from, topic, "x", Qos::AtMostOnce, 0);
    }
    let expected = [
        aliased("first", 1),
        aliased("second", 2),
        aliased("", 1),
        plain("third"),
        // No longer than an alias property.
        plain("abc"),
        aliased("", 2),
        plain("third"),
    ];
    assert_eq!(receive_topics(&mut net, to), expected);
}

#[test]
fn alias_count_is_limited_by_client_and_broker() {
    for (offered, given, expected) in [(0, 16, 0), (u16::MAX, 16, 16), (3, 16, 3), (16, 0, 0)] {
        let mut net = Net::with_limits(|limits| limits.outbound_topic_aliases = given);
        let properties = [Property::TopicAliasMaximum(offered)];
        let [to, from] = connect_pair(&mut net, with_properties(&properties));
        for _ in 0..2 {
            for at in 0..40 {
                net.publish(from, &format!("topic {at}"), "x", Qos::AtMostOnce, 0);
            }
        }
        let aliases = receive_topics(&mut net, to).into_iter().filter_map(|(_, alias)| alias);
        let mut aliases: Vec<String> = aliases.collect();
        assert_eq!(aliases.len(), 2 * expected);
        aliases.sort();
        aliases.dedup();
        assert_eq!(aliases.len(), expected);
    }
}

/// An alias is used only after the message that sets it was written.
#[test]
fn message_that_is_too_large_sets_no_alias() {
    let properties = [Property::TopicAliasMaximum(4), Property::MaximumPacketSize(40)];
    let mut net = Net::default();
    let [to, from] = connect_pair(&mut net, with_properties(&properties));
    // Two bytes of fixed header, the topic and its length, the properties and their length.
    let fits =
        |topic: &str, with_alias: bool| 40 - 2 - 2 - topic.len() - 1 - 3 * usize::from(with_alias);
    let (largest, with_alias) = ("x".repeat(fits("topic", false)), "x".repeat(fits("topic", true)));
    for payload in [&*format!("{largest}x"), &largest, &with_alias, "x", &*format!("{largest}xx")] {
        net.publish(from, "topic", payload, Qos::AtMostOnce, 0);
    }
    let messages = net.receive_messages(to);
    let lens: Vec<usize> = messages.iter().map(|message| message.payload.len()).collect();
    // The last message fits because the alias replaces its topic.
    assert_eq!(lens, [largest.len(), with_alias.len(), 1, largest.len() + 2]);
    let topics: Vec<&str> = messages.iter().map(|message| &*message.topic).collect();
    assert_eq!(topics, ["topic", "topic", "", ""]);
    assert_eq!(
        messages[0].properties,
        <[String; 0]>::default(),
        "an alias would exceed the maximum packet size"
    );
}

#[test]
fn redelivery_on_a_new_connection_sets_its_aliases_again() {
    let mut net = Net::default();
    let properties = [Property::TopicAliasMaximum(4), Property::SessionExpiry(60)];
    let options = ConnectOptions { clean_start: false, properties: &properties, ..CLEAN };
    let [to, from] = connect_pair(&mut net, options);
    for packet in [1, 2] {
        net.publish(from, "topic", "x", Qos::AtLeastOnce, packet);
    }
    assert_eq!(receive_topics(&mut net, to), [aliased("topic", 1), aliased("", 1)]);
    net.close(to);
    let to = net.try_connect("to", options);
    assert_eq!(receive_topics(&mut net, to), [aliased("topic", 1), aliased("", 1)]);
    net.close(to);
    let to = net.try_connect("to", PERSISTENT);
    assert_eq!(
        receive_topics(&mut net, to),
        [plain("topic"), plain("topic")],
        "the client accepts no aliases"
    );
}

#[test]
fn memory_of_aliases_is_counted_and_released() {
    let mut net = Net::default();
    let before = net.broker.stats().bytes;
    let [to, from] =
        connect_pair(&mut net, with_properties(&[Property::TopicAliasMaximum(u16::MAX)]));
    net.receive(to);
    let without = net.broker.stats().bytes;
    for at in 0..100 {
        let topic = format!("{at:05}{}", "x".repeat(10_000));
        net.publish(from, &topic, "x", Qos::AtMostOnce, 0);
    }
    net.receive(to);
    net.receive(to);
    let held = net.broker.stats().bytes - without;
    assert!((160_000..170_000).contains(&held), "{held}");
    net.broker.disconnect(net.now, "to", Reason::ADMINISTRATIVE_ACTION);
    assert!(net.broker.stats().bytes < without, "{:?}", net.broker.stats());
    net.close(to);
    net.close(from);
    assert_eq!(net.broker.stats().bytes, before);
}
