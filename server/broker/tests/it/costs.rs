//! Duration of single calls at the limits. These tests print the minimum of several measurements
//! and check nothing. Run them by hand with a release build:
//!
//! ```text
//! cargo test --release -p statestore-broker --test it -- --ignored --nocapture costs
//! ```

use std::time::Instant;

use super::*;

/// Number of sessions. With the publisher this is the default session limit.
const MANY: usize = 9_999;

/// Measurements of each call.
const SAMPLES: u16 = 5;

#[expect(clippy::disallowed_methods, reason = "this module measures real time")]
fn measure(call: impl FnOnce()) -> Duration {
    let start = Instant::now();
    call();
    start.elapsed()
}

fn print_minimum(title: &str, times: impl IntoIterator<Item = Duration>) {
    let minimum = times.into_iter().min().unwrap_or_default();
    println!("{title:<60} {:>8.2} ms", minimum.as_secs_f64() * 1e3);
}

fn broker_with_subscribers(filter: &str, is_away: bool, change: impl FnOnce(&mut Limits)) -> Net {
    let mut net = Net::with_limits(|limits| {
        limits.connections = MANY + 10;
        change(limits);
    });
    for at in 0..MANY {
        let id = net.connect(&format!("client-{at}"), PERSISTENT);
        net.subscribe(id, filter, Qos::AtLeastOnce);
        if is_away {
            net.close(id);
        }
    }
    while net.broker.poll_wake().is_some() {}
    net
}

fn measure_publishes(title: &str, net: &mut Net, qos: Qos) {
    let from = net.connect("from", CLEAN);
    let times = (1..=SAMPLES).map(|at| {
        let packet = if qos == Qos::AtMostOnce { 0 } else { at };
        let time = measure(|| net.publish(from, "t/u", "x", qos, packet));
        net.receive(from);
        while net.broker.poll_wake().is_some() {}
        time
    });
    let times: Vec<Duration> = times.collect();
    print_minimum(title, times);
    net.close(from);
}

#[test]
#[ignore = "a measurement"]
fn measure_message_to_many_subscribers() {
    measure_publishes(
        "message to 9,999 connected subscribers",
        &mut broker_with_subscribers("t/#", false, |_| {}),
        Qos::AtLeastOnce,
    );
    let mut away = broker_with_subscribers("t/#", true, |_| {});
    measure_publishes("message to 9,999 disconnected subscribers", &mut away, Qos::AtLeastOnce);
    measure_publishes(
        "message at QoS 0 to 9,999 disconnected subscribers",
        &mut away,
        Qos::AtMostOnce,
    );
    let mut share = broker_with_subscribers("$share/g/t/#", true, |_| {});
    measure_publishes(
        "message to a share of 9,999 disconnected members",
        &mut share,
        Qos::AtLeastOnce,
    );
}

#[test]
#[ignore = "a measurement"]
fn measure_large_subscribe() {
    let mut net = Net::default();
    let id = net.connect("greedy", CLEAN);
    let filters: Vec<String> =
        (0..1_000).map(|at| format!("{}{}", at % 60, "/a".repeat(199))).collect();
    let list: Vec<Subscription<'_>> = filters
        .iter()
        .map(|filter| Subscription { filter, options: SubscriptionOptions::default() })
        .collect();
    let subscriptions = Subscriptions::new(&list);
    let properties: Properties<'_> = &[];
    let packet = Packet::Subscribe(Subscribe { id: packet_id(1), properties, subscriptions });
    let mut bytes = BytesMut::new();
    packet.encode(&mut bytes).expect("an encodable packet");
    let mut times = vec![measure(|| net.write(id, &bytes))];
    while net.broker.has_yielded(id) {
        times.push(measure(|| {
            net.receive(id);
        }));
    }
    let all: Duration = times.iter().sum();
    print_minimum("SUBSCRIBE with 1,000 filters of 200 levels: total", [all]);
    print_minimum(
        "SUBSCRIBE with 1,000 filters of 200 levels: longest turn",
        times.iter().max().copied(),
    );
    print_minimum("end of the session with these filters", [measure(|| net.close(id))]);
}

#[test]
#[ignore = "a measurement"]
fn measure_operations_on_many_sessions() {
    let mut net = broker_with_subscribers("t/#", false, |_| {});
    print_minimum(
        "recheck of 9,999 sessions",
        [measure(|| {
            net.broker.recheck(net.now);
        })],
    );
    for at in 0..16 {
        let delay = [Property::WillDelay(5)];
        let options = ConnectOptions { will: Some(will("t/w", "gone", &delay)), ..PERSISTENT };
        let id = net.connect(&format!("client-{at}"), options);
        net.close(id);
    }
    net.now += seconds(5);
    let times: Vec<Duration> =
        (0..16).map(|_| measure(|| net.broker.handle_timeout(net.now))).collect();
    print_minimum("16 wills to 9,999 subscribers: total", [times.iter().sum()]);
    print_minimum("16 wills to 9,999 subscribers: longest turn", times.iter().max().copied());
    let reason = Reason::SERVER_SHUTTING_DOWN;
    print_minimum("disconnect_all", [measure(|| net.broker.disconnect_all(net.now, reason))]);
}

#[test]
#[ignore = "a measurement"]
fn measure_retained_message_that_evicts_many_sessions() {
    let mut net = broker_with_subscribers("t/#", true, |limits| limits.memory = 26 << 20);
    let from = net.connect("from", CLEAN);
    let payload = "x".repeat(1_000_000);
    let publish = Publish { retain: true, ..publish("r", &payload, Qos::AtLeastOnce, 1) };
    let before = net.broker.stats().evicted;
    let time = measure(|| net.send(from, Packet::Publish(publish)));
    let count = net.broker.stats().evicted - before;
    print_minimum(&format!("retained message of 1 MB that evicts {count} sessions"), [time]);
}
