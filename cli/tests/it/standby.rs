//! A second store with the same client id.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use crate::place::{Form, Place, everywhere};
use crate::process::{HANGS, Running, run, statestore};
use crate::raw::{Ask, array};

everywhere!(a_standby_serves_and_the_first_ends, what_the_first_did_not_answer_the_standby_does);

/// A store beside the one of this place, with its client id.
fn standby(here: &Place) -> Running {
    let second = Running::start(&mut here.serve());
    assert!(second.line().contains("as client the store"), "it is ready");
    second
}

fn a_standby_serves_and_the_first_ends(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("a broker is served by one store");
    }
    let Some(mut here) = form.start(&["--client-id", "the store"]) else { return };
    here.run(&["set", "k", "v"]).version();
    let mut serves = here.take_store();
    for _ in 0..2 {
        let second = standby(&here);
        let cause = "another store has taken over client id the store; for this one to serve";
        serves.end().fails(3, &[cause]);
        // It starts with nothing, and answers.
        here.run(&["get", "k"]).is(1, "");
        here.run(&["set", "k", "w"]).version();
        here.run(&["get", "k"]).is(0, "w");
        serves = second;
    }
    serves.signal("-TERM");
    serves.end().is(0, "");
}

fn what_the_first_did_not_answer_the_standby_does(form: Form) {
    if !form.has_broker_apart() {
        return form.skip("a broker is served by one store");
    }
    let Some(mut here) = form.start(&["--client-id", "the store"]) else { return };
    let first = here.take_store();
    let mut raw = here.raw("raw");
    // It has the request, and will see it.
    first.signal("-STOP");
    let ask = Ask::deployed("raw", array(&[b"SET", b"k", b"v"]));
    assert!(raw.deliver(&ask), "the broker has it");
    let second = standby(&here);
    assert_eq!(raw.reply().payload, &b"+OK\r\n"[..]);
    first.signal("-CONT");
    first.end().fails(3, &["another store has taken over client id the store"]);
    here.run(&["get", "k"]).is(0, "v");
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
