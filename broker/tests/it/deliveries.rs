//! Memory of the messages that the host delivers.

use statestore_broker::LocalId;

use super::*;

/// A broker with a host, and this many bytes for all clients.
fn host_with_memory(bytes: usize) -> (Net, LocalId) {
    let mut config = Config::default();
    config.limits.memory = bytes;
    let mut net = Net::new(config);
    let host = net.broker.attach_host(net.now, "$host");
    (net, host)
}

/// Notifications of one change go to many clients, each with another topic.
#[test]
fn payload_that_the_host_sends_to_many_clients_counts_once() {
    const CLIENTS: u16 = 100;
    let (mut net, host) = host_with_memory(1_000_000);
    let names: Vec<_> = (0..CLIENTS).map(|at| format!("c{at}")).collect();
    let clients: Vec<_> = names.iter().map(|name| net.connect(name, CLEAN)).collect();
    clients.iter().for_each(|client| _ = net.receive(*client));
    let before = net.broker.stats().bytes;
    for payload in ["x", "y"].map(|text| text.repeat(100_000)) {
        for name in &names {
            let topic = format!("to/{name}");
            let notification = publish(&topic, &payload, Qos::AtLeastOnce, 0);
            assert_eq!(net.broker.deliver(net.now, name, &notification), Reason::SUCCESS);
        }
    }
    let bytes = net.broker.stats().bytes - before;
    assert!((200_000..300_000).contains(&bytes), "{bytes}");
    for (client, name) in clients.iter().zip(&names) {
        let messages = net.receive_messages(*client);
        let first = messages.iter().map(|message| message.payload.first().copied());
        assert_eq!(first.collect::<Vec<_>>(), [Some(b'x'), Some(b'y')], "{name}");
        messages.iter().for_each(|message| net.ack(*client, message.id));
        net.receive(*client);
    }
    assert_eq!(net.broker.stats().bytes, before, "the bytes are freed");
    assert_eq!(net.broker.stats().evicted, 0);
    assert!(net.broker.is_attached(host));
}

/// Returns the next output of a connection, after `expected` as the next step.
fn poll(net: &mut Net, id: ConnectionId, expected: Output) -> BytesMut {
    let mut out = BytesMut::new();
    assert_eq!(net.broker.poll_output(net.now, id, &mut out), expected);
    out
}

#[test]
fn output_counts_until_the_next_poll() {
    let (mut net, _) = host_with_memory(1_000_000);
    let a = net.connect("a", CLEAN);
    net.receive(a);
    let before = net.broker.stats().bytes;
    for _ in 0..2 {
        let payload = "x".repeat(20_000);
        net.broker.deliver(net.now, "a", &publish("r", &payload, Qos::AtMostOnce, 0));
    }
    let out = poll(&mut net, a, Output::More);
    assert_eq!(net.broker.stats().bytes, before + out.len());
    assert!(poll(&mut net, a, Output::Idle).is_empty());
    assert_eq!(net.broker.stats().bytes, before);
}

#[test]
fn clients_that_do_not_read_a_large_message_share_it() {
    const CLIENTS: usize = 100;
    const LEN: usize = 900_000;
    const PART: usize = 32 << 10;
    for qos in [Qos::AtMostOnce, Qos::AtLeastOnce] {
        let (mut net, _) = host_with_memory(8_000_000);
        let names: Vec<_> = (0..CLIENTS).map(|at| format!("c{at}")).collect();
        let clients: Vec<_> = names.iter().map(|name| net.connect(name, CLEAN)).collect();
        clients.iter().for_each(|client| _ = net.receive(*client));
        let before = net.broker.stats().bytes;
        let payload = "x".repeat(LEN);
        for name in &names {
            let message = publish("t", &payload, qos, u16::from(qos > Qos::AtMostOnce));
            assert_eq!(net.broker.deliver(net.now, name, &message), Reason::SUCCESS);
        }
        for client in &clients {
            let part = poll(&mut net, *client, Output::More);
            assert_eq!(part.len(), PART);
            net.unread.entry(*client).or_default().extend_from_slice(&part);
        }
        let bytes = net.broker.stats().bytes - before;
        assert!(bytes < LEN + CLIENTS * (PART + 1_024), "{bytes} bytes at {qos:?}");
        for client in &clients {
            let [message] = &net.receive_messages(*client)[..] else { panic!("one message") };
            assert!(message.payload == payload.as_bytes(), "another payload");
            if message.id > 0 {
                net.ack(*client, message.id);
            }
            net.receive(*client);
        }
        assert_eq!(net.broker.stats().bytes, before, "the bytes are freed");
        assert_eq!(net.broker.stats().evicted, 0);
    }
}

#[test]
fn responses_follow_the_last_part_of_a_packet() {
    let mut net = Net::default();
    let a = net.connect("a", CLEAN);
    net.broker.deliver(net.now, "a", &publish("t", &"x".repeat(100_000), Qos::AtMostOnce, 0));
    let part = poll(&mut net, a, Output::More);
    net.unread.entry(a).or_default().extend_from_slice(&part);
    net.send(a, Packet::PingReq);
    let received = net.receive(a);
    assert!(matches!(&received[..], [Received::Publish(_), Received::PingResp]), "{received:?}");
}

#[test]
fn connection_that_ends_after_a_part_of_a_packet_is_sent_nothing_more() {
    let mut net = Net::default();
    let before = net.broker.stats().bytes;
    let a = net.connect("a", CLEAN);
    net.broker.deliver(net.now, "a", &publish("t", &"x".repeat(100_000), Qos::AtMostOnce, 0));
    let _ = poll(&mut net, a, Output::More);
    net.send(a, Packet::PingReq);
    assert!(net.broker.disconnect(net.now, "a", Reason::ADMINISTRATIVE_ACTION));
    assert!(poll(&mut net, a, Output::Close).is_empty());
    net.close(a);
    assert_eq!(net.broker.stats().bytes, before, "the bytes are freed");
}

/// A part ends within the message expiry interval, which changes between two parts.
#[test]
fn parts_have_the_expiry_interval_of_the_first_part() {
    let (long, payload) = ("x".repeat((32 << 10) - 14), "x".repeat(100));
    for cut in 0..16 {
        let mut net = Net::default();
        let a = net.connect("a", CLEAN);
        let properties = [Property::User("n", &long[cut..]), Property::MessageExpiry(0x0102_0304)];
        let message = publish("t", &payload, Qos::AtMostOnce, 0);
        let message = Publish { properties: &properties[..], ..message };
        assert_eq!(net.broker.deliver(net.now, "a", &message), Reason::SUCCESS);
        let part = poll(&mut net, a, Output::More);
        net.unread.entry(a).or_default().extend_from_slice(&part);
        net.now += seconds(0x0101_0101);
        let [message] = &net.receive_messages(a)[..] else { panic!("one message") };
        let properties = properties.map(|property| format!("{property:?}"));
        assert_eq!(message.properties, properties, "{cut}");
    }
}
