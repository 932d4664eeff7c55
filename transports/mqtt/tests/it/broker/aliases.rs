//! Topic aliases that a client is given.

use super::*;

/// What says the topic of a message: itself, and an alias.
fn topics(net: &mut Net, id: ConnectionId) -> Vec<(String, Option<String>)> {
    let heard = net.heard(id).into_iter();
    heard
        .map(|message| {
            let alias = message.properties.into_iter().find(|one| one.starts_with("TopicAlias"));
            (message.topic, alias)
        })
        .collect()
}

fn said(topic: &str, alias: u16) -> (String, Option<String>) {
    (topic.into(), Some(format!("TopicAlias({alias})")))
}

fn plain(topic: &str) -> (String, Option<String>) {
    (topic.into(), None)
}

/// A client with this on its CONNECT that subscribes to everything, and one that publishes.
fn pair(net: &mut Net, hello: Hello<'_>) -> [ConnectionId; 2] {
    let to = net.connect("to", hello);
    net.subscribe(to, "#", Qos::AtLeastOnce);
    [to, net.connect("from", HELLO)]
}

fn offering(properties: Properties<'_>) -> Hello<'_> {
    Hello { properties, ..HELLO }
}

#[test]
fn the_first_topics_have_one() {
    let mut net = Net::default();
    let [to, from] = pair(&mut net, offering(&[Property::TopicAliasMaximum(2)]));
    for topic in ["first", "second", "first", "third", "abc", "second", "third"] {
        net.publish(from, topic, "x", Qos::AtMostOnce, 0);
    }
    let expected = [
        said("first", 1),
        said("second", 2),
        said("", 1),
        plain("third"),
        // No longer than an alias.
        plain("abc"),
        said("", 2),
        plain("third"),
    ];
    assert_eq!(topics(&mut net, to), expected);
}

#[test]
fn as_many_as_the_client_offers_and_the_broker_gives() {
    for (offered, given, expected) in [(0, 16, 0), (u16::MAX, 16, 16), (3, 16, 3), (16, 0, 0)] {
        let mut net = Net::limited(|limits| limits.topic_aliases_given = given);
        let properties = [Property::TopicAliasMaximum(offered)];
        let [to, from] = pair(&mut net, offering(&properties));
        for _ in 0..2 {
            for at in 0..40 {
                net.publish(from, &format!("topic {at}"), "x", Qos::AtMostOnce, 0);
            }
        }
        let aliases = topics(&mut net, to).into_iter().filter_map(|(_, alias)| alias);
        let mut aliases: Vec<String> = aliases.collect();
        assert_eq!(aliases.len(), 2 * expected);
        aliases.sort();
        aliases.dedup();
        assert_eq!(aliases.len(), expected);
    }
}

/// Only what is written can be referred to.
#[test]
fn what_is_not_sent_says_nothing() {
    let properties = [Property::TopicAliasMaximum(4), Property::MaximumPacketSize(40)];
    let mut net = Net::default();
    let [to, from] = pair(&mut net, offering(&properties));
    // A fixed header of two bytes, the topic with its length, properties, their length.
    let fits =
        |topic: &str, with_alias: bool| 40 - 2 - 2 - topic.len() - 1 - 3 * usize::from(with_alias);
    let (largest, with_alias) = ("x".repeat(fits("topic", false)), "x".repeat(fits("topic", true)));
    for payload in [&*format!("{largest}x"), &largest, &with_alias, "x", &*format!("{largest}xx")] {
        net.publish(from, "topic", payload, Qos::AtMostOnce, 0);
    }
    let heard = net.heard(to);
    let lens: Vec<usize> = heard.iter().map(|message| message.payload.len()).collect();
    // By its alias the last one fits, too.
    assert_eq!(lens, [largest.len(), with_alias.len(), 1, largest.len() + 2]);
    let told: Vec<&str> = heard.iter().map(|message| &*message.topic).collect();
    assert_eq!(told, ["topic", "topic", "", ""]);
    assert_eq!(heard[0].properties, <[String; 0]>::default(), "there is no room for an alias");
}

#[test]
fn what_is_sent_again_says_its_topic_again() {
    let mut net = Net::default();
    let properties = [Property::TopicAliasMaximum(4), Property::SessionExpiry(60)];
    let hello = Hello { clean_start: false, properties: &properties, ..HELLO };
    let [to, from] = pair(&mut net, hello);
    for packet in [1, 2] {
        net.publish(from, "topic", "x", Qos::AtLeastOnce, packet);
    }
    assert_eq!(topics(&mut net, to), [said("topic", 1), said("", 1)]);
    net.close(to);
    let to = net.try_connect("to", hello);
    assert_eq!(topics(&mut net, to), [said("topic", 1), said("", 1)]);
    net.close(to);
    let to = net.try_connect("to", KEPT);
    assert_eq!(topics(&mut net, to), [plain("topic"), plain("topic")], "it offers none");
}

#[test]
fn aliases_are_counted_and_given_back() {
    let mut net = Net::default();
    let before = net.broker.stats().bytes;
    let [to, from] = pair(&mut net, offering(&[Property::TopicAliasMaximum(u16::MAX)]));
    net.seen(to);
    let without = net.broker.stats().bytes;
    for at in 0..100 {
        let topic = format!("{at:05}{}", "x".repeat(10_000));
        net.publish(from, &topic, "x", Qos::AtMostOnce, 0);
    }
    net.seen(to);
    net.seen(to);
    let held = net.broker.stats().bytes - without;
    assert!((160_000..170_000).contains(&held), "{held}");
    net.broker.disconnect(net.now, "to", Reason::ADMINISTRATIVE_ACTION);
    assert!(net.broker.stats().bytes < without, "{:?}", net.broker.stats());
    net.close(to);
    net.close(from);
    assert_eq!(net.broker.stats().bytes, before);
}
