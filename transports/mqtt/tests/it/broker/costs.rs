//! What one call takes at the limits. These are figures, not judgements: each prints the least of some tries, and is run by
//! hand, with a release build: `cargo test --release -p statestore-mqtt --test it -- --ignored --nocapture costs`.

use std::time::Instant;

use super::*;

/// Sessions; as many as the default limits allow, with the publisher.
const MANY: usize = 9_999;

/// Tries of each.
const TRIES: u16 = 5;

#[expect(clippy::disallowed_methods, reason = "to measure is what this is for")]
fn timed(act: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    act();
    begun.elapsed()
}

fn tell(what: &str, times: impl IntoIterator<Item = Duration>) {
    let least = times.into_iter().min().unwrap_or_default();
    println!("{what:<60} {:>8.2} ms", least.as_secs_f64() * 1e3);
}

fn crowd(filter: &str, is_away: bool, change: impl FnOnce(&mut Limits)) -> Net {
    let mut net = Net::limited(|limits| {
        limits.connections = MANY + 10;
        change(limits);
    });
    for at in 0..MANY {
        let id = net.connect(&format!("client-{at}"), KEPT);
        net.subscribe(id, filter, Qos::AtLeastOnce);
        if is_away {
            net.close(id);
        }
    }
    while net.broker.poll_wake().is_some() {}
    net
}

fn publications(what: &str, net: &mut Net, qos: Qos) {
    let from = net.connect("from", HELLO);
    let times = (1..=TRIES).map(|at| {
        let packet = if qos == Qos::AtMostOnce { 0 } else { at };
        let time = timed(|| net.publish(from, "t/u", "x", qos, packet));
        net.seen(from);
        while net.broker.poll_wake().is_some() {}
        time
    });
    let times: Vec<Duration> = times.collect();
    tell(what, times);
    net.close(from);
}

#[test]
#[ignore = "a measurement"]
fn a_message_to_everybody() {
    publications(
        "a message to 9,999 connected",
        &mut crowd("t/#", false, |_| {}),
        Qos::AtLeastOnce,
    );
    let mut away = crowd("t/#", true, |_| {});
    publications("a message to 9,999 away", &mut away, Qos::AtLeastOnce);
    publications("the same at QoS 0", &mut away, Qos::AtMostOnce);
    let mut share = crowd("$share/g/t/#", true, |_| {});
    publications("a message to a share of 9,999 away", &mut share, Qos::AtLeastOnce);
}

#[test]
#[ignore = "a measurement"]
fn filters_in_one_packet() {
    let mut net = Net::default();
    let id = net.connect("greedy", HELLO);
    let filters: Vec<String> =
        (0..1_000).map(|at| format!("{}{}", at % 60, "/a".repeat(199))).collect();
    let list: Vec<Subscription<'_>> = filters
        .iter()
        .map(|filter| Subscription { filter, options: SubscriptionOptions::default() })
        .collect();
    let subscriptions = Subscriptions::new(&list);
    let properties: Properties<'_> = &[];
    let packet = Packet::Subscribe(Subscribe { id: number(1), properties, subscriptions });
    let mut bytes = BytesMut::new();
    packet.encode(&mut bytes).expect("a packet");
    let mut times = vec![timed(|| net.write(id, &bytes))];
    while net.broker.rests(id) {
        times.push(timed(|| {
            net.seen(id);
        }));
    }
    let all: Duration = times.iter().sum();
    tell("a SUBSCRIBE of 1,000 filters of 200 levels, all of it", [all]);
    tell("its longest turn", times.iter().max().copied());
    tell("its session's end", [timed(|| net.close(id))]);
}

#[test]
#[ignore = "a measurement"]
fn everybody_at_once() {
    let mut net = crowd("t/#", false, |_| {});
    tell(
        "recheck of 9,999",
        [timed(|| {
            net.broker.recheck(net.now);
        })],
    );
    for at in 0..16 {
        let delay = [Property::WillDelay(5)];
        let hello = Hello { will: Some(will("t/w", "gone", &delay)), ..KEPT };
        let id = net.connect(&format!("client-{at}"), hello);
        net.close(id);
    }
    net.now += seconds(5);
    let times: Vec<Duration> =
        (0..16).map(|_| timed(|| net.broker.handle_timeout(net.now))).collect();
    tell("16 wills to 9,999, all of them", [times.iter().sum()]);
    tell("the longest turn", times.iter().max().copied());
    let reason = Reason::SERVER_SHUTTING_DOWN;
    tell("disconnect_all", [timed(|| net.broker.disconnect_all(net.now, reason))]);
}

#[test]
#[ignore = "a measurement"]
fn very_many_that_give_way() {
    let mut net = crowd("t/#", true, |limits| limits.memory = 26 << 20);
    let from = net.connect("from", HELLO);
    let payload = "x".repeat(1_000_000);
    let publish = Publish { retain: true, ..publish("r", &payload, Qos::AtLeastOnce, 1) };
    let before = net.broker.stats().evicted;
    let time = timed(|| net.send(from, Packet::Publish(publish)));
    let count = net.broker.stats().evicted - before;
    tell(&format!("a retained message of 1 MB that ends {count} sessions"), [time]);
}
