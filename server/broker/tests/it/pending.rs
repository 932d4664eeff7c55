//! Limits of connections, and connections whose client is not accepted yet.

use super::*;

fn accept_from(net: &mut Net, peer: &str) -> ConnectionId {
    let peer = peer.parse().ok();
    net.broker.handle_accept(net.now, peer).expect("the broker accepts the connection")
}

fn send_connect(net: &mut Net, id: ConnectionId, client_id: &str) {
    let connect = Connect {
        clean_start: true,
        keep_alive: 0,
        properties: &[][..],
        client_id,
        will: None,
        user_name: None,
        password: None,
    };
    net.send(id, Packet::Connect(connect));
}

#[test]
fn clients_over_a_limit_receive_the_reason() {
    let [here, there] = ["192.0.2.1", "192.0.2.2"];
    for (peers, kind, reason) in [
        ([here, there], IncidentKind::Connections, Reason::SERVER_BUSY),
        ([here, here], IncidentKind::Address, Reason::QUOTA_EXCEEDED),
    ] {
        let mut net = Net::with_limits(|limits| {
            limits.connections_per_address = 2;
            limits.connections = if kind == IncidentKind::Address { 10 } else { 2 };
        });
        let [first, _] = peers.map(|peer| {
            let id = accept_from(&mut net, peer);
            send_connect(&mut net, id, &format!("{id:?}"));
            assert_eq!(net.receive(id), [Received::ConnAck(false, Reason::SUCCESS)]);
            id
        });
        for _ in 0..3 {
            let late = accept_from(&mut net, here);
            send_connect(&mut net, late, "late");
            // Nothing more is read.
            net.publish(late, "t", "x", Qos::AtLeastOnce, 1);
            assert_eq!(net.receive(late), [Received::ConnAck(false, reason)]);
            assert!(net.is_closed(late) && !net.broker.is_connected("late"));
            let incidents = net.drain_incidents();
            let [incident] = &incidents[..] else { panic!("{incidents:?}") };
            assert_eq!((incident.kind, incident.client_id.as_deref()), (kind, Some("late")));
            net.close(late);
            net.advance(seconds(10));
            net.drain_incidents();
        }
        net.close(first);
        let late = accept_from(&mut net, here);
        send_connect(&mut net, late, "late");
        assert_eq!(net.receive(late), [Received::ConnAck(false, Reason::SUCCESS)]);
        assert_eq!(net.broker.stats().connections, 2);
    }
}

/// Connections that send nothing keep out neither a client of another network nor, as long as it is
/// fast, one of their own.
#[test]
fn silent_connections_do_not_exclude_other_clients() {
    for (attackers, client) in [
        (["192.0.2.1", "192.0.2.1"], "192.0.2.2"),
        (["::ffff:192.0.2.1", "192.0.2.1"], "192.0.2.2"),
        (["2001:db8::1", "2001:db8::2"], "2001:db8:0:1::1"),
        (["127.0.0.1", "127.0.0.1"], "192.0.2.2"),
    ] {
        let mut net = Net::with_limits(|limits| limits.pending_connections = 8);
        let flood = |net: &mut Net, count: usize| {
            for peer in attackers.iter().cycle().take(count) {
                let id = accept_from(net, peer);
                net.write(id, &[0x10]);
                net.drain_closed();
            }
        };
        flood(&mut net, 100);
        let connecting = accept_from(&mut net, client);
        flood(&mut net, 100);
        send_connect(&mut net, connecting, "client");
        assert_eq!(net.receive(connecting), [Received::ConnAck(false, Reason::SUCCESS)]);

        let neighbour = accept_from(&mut net, attackers[0]);
        flood(&mut net, 7);
        send_connect(&mut net, neighbour, "neighbour");
        assert_eq!(net.receive(neighbour), [Received::ConnAck(false, Reason::SUCCESS)]);
        assert!(net.broker.stats().connections <= 2 + 8, "{:?}", net.broker.stats());
        assert!(
            net.drain_incidents().iter().any(|incident| incident.kind == IncidentKind::Pending)
        );
    }
}

/// A client is replaced only by as many later connections as may be pending, whatever its address.
#[test]
fn connections_from_many_networks_replace_the_oldest() {
    for client in ["192.0.2.1", "198.51.100.9", "10.0.0.1", "2001:db8::1"] {
        let mut net = Net::with_limits(|limits| limits.pending_connections = 8);
        for at in 0..20 {
            accept_from(&mut net, &format!("192.0.3.{at}"));
            net.drain_closed();
        }
        let connecting = accept_from(&mut net, client);
        for at in 0..7 {
            accept_from(&mut net, &format!("192.0.4.{at}"));
            net.drain_closed();
        }
        send_connect(&mut net, connecting, "client");
        assert_eq!(
            net.receive(connecting),
            [Received::ConnAck(false, Reason::SUCCESS)],
            "{client}"
        );
    }
}

/// A login takes longer than a CONNECT.
#[test]
fn connection_without_connect_is_replaced_before_one_that_logs_in() {
    let mut config = Config { requires_login: true, ..Config::default() };
    config.limits.pending_connections = 3;
    let mut net = Net::new(config);
    let logging_in = accept_from(&mut net, "192.0.2.1");
    send_connect(&mut net, logging_in, "client");
    for _ in 0..20 {
        accept_from(&mut net, "192.0.2.1");
        net.drain_closed();
    }
    assert!(net.broker.handle_login(net.now, logging_in, Ok(Admission::default())));
    // Connections that all log in replace the oldest.
    let [oldest, ..] = [1, 2, 3, 4].map(|at| {
        let id = accept_from(&mut net, "192.0.2.1");
        send_connect(&mut net, id, &format!("client {at}"));
        id
    });
    assert!(net.broker.is_closing(oldest));
    assert!(!net.broker.handle_login(net.now, oldest, Ok(Admission::default())));
}

/// For a driver without file descriptors. The order is that at the limit.
#[test]
fn driver_displaces_the_oldest_silent_connection_of_the_largest_network() {
    let login_time = Duration::from_millis(500);
    let mut net = Net::new(Config { requires_login: true, ..Config::default() });
    let other = accept_from(&mut net, "192.0.2.1");
    let logging_in = accept_from(&mut net, "198.51.100.1");
    send_connect(&mut net, logging_in, "client");
    let silent = [(); 2].map(|()| accept_from(&mut net, "198.51.100.1"));
    assert!(!net.broker.displace_pending(net.now, login_time), "they may still log in");
    net.advance(login_time);
    for expected in [silent[0], silent[1], other, logging_in] {
        assert!(!net.broker.is_closing(expected));
        assert!(net.broker.displace_pending(net.now, login_time));
        assert!(net.broker.is_closing(expected), "{expected:?}");
    }
    assert!(!net.broker.displace_pending(net.now, login_time));
    let mut incidents = net.drain_incidents().into_iter();
    assert!(incidents.any(|incident| incident.kind == IncidentKind::Pending));
}

/// Closing takes time if the peer does not read.
#[test]
fn connections_are_refused_while_too_many_are_closing() {
    let mut net = Net::with_limits(|limits| limits.pending_connections = 2);
    let all: Vec<_> = (0..4).map(|_| accept_from(&mut net, "192.0.2.1")).collect();
    let accept = |net: &mut Net| net.broker.handle_accept(net.now, "192.0.2.9".parse().ok());
    assert_eq!(accept(&mut net), Err(Refused));
    assert_eq!(net.broker.stats().connections, 4);
    net.close(all[0]);
    assert!(accept(&mut net).is_ok());
}
