//! Keep alive in both directions.

use super::*;

/// Three quarters of 40 seconds.
const IDLE: Duration = Duration::from_secs(30);

fn rig() -> Rig {
    Rig::connected(options().keep_alive(40))
}

#[test]
fn pingreq_is_sent_when_nothing_was_sent() {
    let mut rig = rig();
    let due = rig.now + IDLE;
    assert_eq!(rig.session.poll_timeout(), Some(due));
    rig.session.handle_timeout(due);
    assert_eq!(rig.sent(), [Sent::PingReq]);
    rig.now = due;
    rig.receive(Packet::PingResp);
    assert_eq!(rig.session.poll_timeout(), Some(due + IDLE));
    assert_eq!(rig.events(), []);
}

#[test]
fn written_and_received_bytes_postpone_the_pingreq() {
    let mut rig = rig();
    rig.now += seconds(10);
    rig.publish(Qos::AtMostOnce, "t").unwrap();
    rig.sent();
    assert_eq!(rig.session.poll_timeout(), Some(rig.now + seconds(20)), "nothing was received");
    rig.now += seconds(5);
    rig.receive_publish(Qos::AtMostOnce, 0, false, "t");
    assert_eq!(rig.session.poll_timeout(), Some(rig.now + seconds(25)), "sent 5 s ago");
}

#[test]
fn dead_server_is_detected_while_the_client_keeps_sending() {
    let mut rig = rig();
    let start = rig.now;
    while !rig.session.is_closing() {
        rig.now += seconds(1);
        rig.session.handle_timeout(rig.now);
        let _ = rig.publish(Qos::AtMostOnce, "t");
        rig.sent();
    }
    assert_eq!(rig.end(), Error::KeepAliveTimeout);
    assert_eq!(rig.now - start, IDLE + seconds(20));
}

#[test]
fn missing_pingresp_ends_the_connection_without_a_disconnect() {
    let mut rig = Rig::connected(options().keep_alive(40).ping_timeout(seconds(3)));
    rig.now += IDLE;
    rig.session.handle_timeout(rig.now);
    assert_eq!(rig.sent(), [Sent::PingReq]);
    assert_eq!(rig.session.poll_timeout(), Some(rig.now + seconds(3)));
    rig.now += seconds(3);
    rig.session.handle_timeout(rig.now);
    assert_eq!(rig.end(), Error::KeepAliveTimeout);
    assert_eq!((rig.sent(), rig.session.poll_timeout()), (vec![], None));
}

#[test]
fn large_packet_that_still_arrives_extends_the_wait_for_pingresp() {
    let mut rig = rig();
    rig.now += IDLE;
    rig.session.handle_timeout(rig.now);
    rig.now += seconds(19);
    rig.receive_bytes(&[0x30, 0x7f, 0]);
    assert_eq!(rig.session.poll_timeout(), Some(rig.now + seconds(20)));
    let left = rig.now;
    rig.now += seconds(19);
    rig.take_input();
    assert_eq!(rig.session.poll_timeout(), Some(left + seconds(20)), "the same bytes do not");
}

#[test]
fn keep_alive_of_the_server_replaces_that_of_the_options() {
    for (own, servers, idle) in [(40, 8, Some(6)), (0, 8, Some(6)), (40, 0, None)] {
        let options = options().keep_alive(own);
        let rig = Rig::with_server(options, &[Property::ServerKeepAlive(servers)]);
        assert_eq!(rig.session.poll_timeout(), idle.map(|idle| rig.now + seconds(idle)));
    }
}

#[test]
fn keep_alive_0_sends_no_pingreq() {
    let mut rig = Rig::connected(options().keep_alive(0));
    assert_eq!(rig.session.poll_timeout(), None);
    rig.session.handle_timeout(Duration::MAX);
    assert_eq!((rig.sent(), rig.events()), (vec![], vec![]));
}
