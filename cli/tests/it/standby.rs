//! A second store with the same client id.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::place::{Form, everywhere};
use crate::process::{HANGS, Running, run, statestore};

everywhere!(a_standby_answers_when_the_first_has_gone);

fn a_standby_answers_when_the_first_has_gone(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("a broker is served by one store");
    }
    let Some(mut here) = form.start(&["--client-id", "the store"]) else { return };
    here.run(&["set", "k", "v"]).version();
    let first = here.take_store();
    let second = Running::start(&mut here.serve());
    assert!(second.line().contains("as client the store"), "it is ready");
    // A broker that tells the first of the takeover ends it; mosquitto 2.0 does not.
    first.signal("-TERM");
    assert!(matches!(first.end().code, Some(0 | 3)));
    // It starts with nothing, and answers.
    here.run(&["set", "other", "w"]).version();
    here.run(&["get", "other"]).is(0, "w");
    here.run(&["get", "k"]).is(1, "");
    second.signal("-TERM");
    second.end().is(0, "");
}

/// A broker that grants the first subscription, and then says that another has come with this client id.
fn takeover(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().expect("a connection");
    stream.set_read_timeout(Some(HANGS)).expect("a socket");
    assert_eq!(packet(&mut stream)[0], 0x10, "CONNECT");
    stream.write_all(&[0x20, 3, 0, 0, 0]).expect("CONNACK");
    let subscribe = packet(&mut stream);
    assert_eq!(subscribe[0], 0x82, "SUBSCRIBE");
    stream.write_all(&[0x90, 4, subscribe[2], subscribe[3], 0, 1]).expect("SUBACK");
    stream.write_all(&[0xe0, 2, 0x8e, 0]).expect("DISCONNECT");
    stream
}

/// One packet of less than 128 bytes, or of less than 16 kB with its length cut to one byte.
fn packet(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 2];
    stream.read_exact(&mut head).expect("a packet");
    let mut length = usize::from(head[1] & 0x7f);
    if head[1] >= 0x80 {
        let mut more = [0];
        stream.read_exact(&mut more).expect("its length");
        length += usize::from(more[0]) << 7;
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).expect("its body");
    [&head[..], &body].concat()
}

#[test]
fn a_store_that_is_told_of_a_takeover_ends() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let url = format!("mqtt://{}", listener.local_addr().expect("its address"));
    let ended = std::thread::scope(|scope| {
        let broker = scope.spawn(|| takeover(&listener));
        let ended = run(statestore().args(["serve", "--broker", &url]));
        drop(broker.join().expect("it says goodbye"));
        ended
    });
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(ended.err.contains("disconnected by the broker: SessionTakenOver (0x8e)"), "{ended:?}");
}
