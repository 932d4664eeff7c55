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

#[test]
fn output_counts_until_the_next_poll() {
    let (mut net, _) = host_with_memory(1_000_000);
    let a = net.connect("a", CLEAN);
    net.receive(a);
    let before = net.broker.stats().bytes;
    let payload = "x".repeat(100_000);
    net.broker.deliver(net.now, "a", &publish("r", &payload, Qos::AtMostOnce, 0));
    let mut out = BytesMut::new();
    assert_eq!(net.broker.poll_output(net.now, a, &mut out), Output::More);
    assert_eq!(net.broker.stats().bytes, before + out.len());
    assert_eq!(net.broker.poll_output(net.now, a, &mut BytesMut::new()), Output::Idle);
    assert_eq!(net.broker.stats().bytes, before);
}
