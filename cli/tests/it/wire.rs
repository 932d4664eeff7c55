//! The packets of the command, as a subscriber of the request topic receives them.

use statestore_testkit::wire::packets::Publish;
use statestore_testkit::wire::raw::{Hello, REQUEST, Raw, property, response_topic};

use crate::deployment::{Deployment, Mode, in_each_mode};

in_each_mode!(options_arrive_on_the_wire);

/// Runs a command and returns the request that it sent.
fn sent(here: &Deployment, spy: &mut Raw, line: &str) -> Publish {
    let ended = here.run(&line.split(' ').collect::<Vec<_>>());
    assert!(ended.code <= Some(1), "{line}: {ended:?}");
    spy.reply()
}

fn options_arrive_on_the_wire(mode: Mode) {
    if !mode.has_external_broker() {
        return mode.skip("a client cannot receive the requests of other clients");
    }
    let Some(here) = mode.start(&[]) else { return };
    let mut spy = Raw::open(here.port(), "spy", Hello::default());
    spy.subscribe(REQUEST);
    let payload = |publish: &Publish| publish.payload.escape_ascii().to_string();

    let plain = sent(&here, &mut spy, "set k v --client-id me --timeout 2500ms");
    assert_eq!(payload(&plain), r"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n");
    assert_eq!(property(&plain, "__srcId"), Some("me"));
    assert_eq!(property(&plain, "__protVer"), Some("1.0"));
    assert_eq!(property(&plain, "aio-persistence"), None);
    assert_eq!(property(&plain, "__ft"), None);
    assert!(property(&plain, "__ts").is_some_and(|text| text.ends_with(":me")), "{plain:?}");
    let properties = plain.properties.as_ref().expect("properties");
    assert_eq!(properties.message_expiry_interval, Some(3), "whole seconds, rounded up");
    assert_eq!(properties.content_type.as_deref(), Some("application/octet-stream"));
    assert_eq!(properties.correlation_data.as_ref().map(bytes::Bytes::len), Some(16));
    let topic = properties.response_topic.as_deref();
    assert_eq!(topic, Some(response_topic("me").as_str()));

    let token = "1696374425000:7:holder";
    let set = sent(
        &here,
        &mut spy,
        &format!("set k w --nex --px 1500ms --persist --fencing-token {token}"),
    );
    let lock = r"*6\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nw\r\n$3\r\nNEX\r\n$2\r\nPX\r\n$4\r\n1500\r\n";
    assert_eq!(payload(&set), lock);
    assert_eq!(property(&set, "aio-persistence"), Some("true"));
    assert_eq!(property(&set, "__ft"), Some(token), "the token is sent unchanged");
    let id = property(&set, "__srcId").expect("a client id").to_owned();
    assert!(id.starts_with("statestore-cli-"), "{id}");

    for (line, expected) in [
        ("set x v --nx", r"*4\r\n$3\r\nSET\r\n$1\r\nx\r\n$1\r\nv\r\n$2\r\nNX\r\n"),
        ("get k", r"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"),
        ("vdel k v", r"*3\r\n$4\r\nVDEL\r\n$1\r\nk\r\n$1\r\nv\r\n"),
        ("del k", r"*2\r\n$3\r\nDEL\r\n$1\r\nk\r\n"),
    ] {
        let publish = sent(&here, &mut spy, line);
        assert_eq!(payload(&publish), expected);
        let other = property(&publish, "__srcId");
        assert!(other.is_some() && other != Some(&id), "each run has a new client id");
    }
    let del = sent(&here, &mut spy, &format!("del k --fencing-token {token}"));
    assert_eq!(property(&del, "__ft"), Some(token));
}
