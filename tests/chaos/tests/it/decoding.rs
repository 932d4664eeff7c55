//! `decode` on the command line.

use statestore_testkit::process::command::{run, run_with_input};

use crate::support::tools;

#[test]
fn arguments_and_standard_input_are_described() {
    let decode = |args: &[&str]| run(tools().arg("decode").args(args));
    let get = "2a320d0a24330d0a4745540d0a24310d0a6b0d0a";
    decode(&[get]).is(0, "a request\n  verb             GET\n  key              k\n");
    decode(&["--after", "set", ":-1"]).is(
        0,
        "a reply\n  after            SET\n  means            not stored: the condition does not hold\n",
    );
    let clock = decode(&["001696374425000:00000:CLIENT", "--output", "json"]).json();
    assert_eq!(clock["wall"], "2023-10-03T23:07:05.000Z");
    let from_stdin = run_with_input(tools().arg("decode"), b"*2\r\n$3\r\nGET\r\n$1\r\n\x1b\r\n");
    assert_eq!(from_stdin.code, Some(0));
    assert!(!from_stdin.out.contains(&0x1b), "{from_stdin:?}");
    // Values are shown only with --values.
    let set = "*3\\r\\n$3\\r\\nSET\\r\\n$1\\r\\nk\\r\\n$6\\r\\nsecret\\r\\n";
    assert!(decode(&[set]).text().ends_with("  value            6 bytes\n"));
    assert!(decode(&[set, "--values"]).text().contains("secret (6 bytes)"));
}

#[test]
fn invalid_input_is_rejected_with_its_position() {
    let decode = |args: &[&str]| run(tools().arg("decode").args(args));
    decode(&["hello"]).fails(2, &["neither a payload, a topic, a clock nor an MQTT 5 packet"]);
    decode(&["*2\\r\\n$3\\r\\nGET\\r\\n"]).fails(2, &["not a request: ", "at byte "]);
    // Valid packets before the invalid one are printed.
    let ended = decode(&["c000", "40"]);
    assert_eq!((ended.code, ended.text()), (Some(2), "PINGREQ\n"), "{ended:?}");
}
