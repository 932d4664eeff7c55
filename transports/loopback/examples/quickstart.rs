//! The whole protocol on one screen, with no broker and no network.
//!
//! `cargo run --release --example quickstart -p statestore-loopback`

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use statestore_loopback::{Error as SessionError, Session};
use statestore_proto::client::{Request, WatchEvent};
use statestore_proto::message::{Command, Condition, Expiry};

fn main() -> Result<(), Box<dyn Error>> {
    let mut session = Session::new();
    let alice = session.connect("alice")?;
    let bob = session.connect("bob")?;

    println!("1. Values have versions.");
    let version = session.set(alice, "thermostat", "21")?;
    println!("   alice  SET thermostat 21              +OK, version {version}");
    let found = session.get(bob, "thermostat")?.ok_or("the value was just set")?;
    println!(
        "   bob    GET thermostat                 {}, the same version",
        found.value.escape_ascii()
    );

    println!("2. A write can depend on what is there.");
    let only_if_absent = set("thermostat", "19", Condition::IfAbsent, None);
    let refused = session.write(bob, Request::new(only_if_absent)) == Err(SessionError::NotApplied);
    println!(
        "   bob    SET thermostat 19 NX           {}",
        if refused { "not applied" } else { "applied" }
    );

    println!("3. A lock is a key; the version that took it fences whoever held it before.");
    let lease = Expiry::after(Duration::from_secs(10));
    let take = |holder| Request::new(set("lock", holder, Condition::IfAbsentOrEqual, lease));
    let first = session.write(alice, take("alice"))?.to_fencing_token();
    println!("   alice  SET lock alice NEX PX 10000    +OK, fencing token {first}");
    println!("   ...    11 seconds pass, the lease of alice runs out");
    session.advance(Duration::from_secs(11));
    let second = session.write(bob, take("bob"))?.to_fencing_token();
    println!("   bob    SET lock bob NEX PX 10000      +OK, fencing token {second}");
    let valve = |position, token| {
        Request::new(set("valve", position, Condition::Always, None)).fencing_token(token)
    };
    session.write(bob, valve("open", second))?;
    println!("   bob    SET valve open, with his token +OK");
    if let Err(error) = session.write(alice, valve("shut", first)) {
        println!("   alice  SET valve shut, with hers      {error}");
    }

    println!("4. Watchers are told.");
    session.watch(bob, "thermostat")?;
    session.set(alice, "thermostat", "23")?;
    session.del(alice, "thermostat")?;
    while let Some((_, event)) = session.next_change(bob) {
        match event {
            WatchEvent::Changed { value: Some(value), .. } => {
                println!("   bob    hears: {}", value.escape_ascii());
            }
            WatchEvent::Changed { value: None, .. } => println!("   bob    hears: deleted"),
            WatchEvent::Live => println!("   bob    hears: that is current, changes follow"),
            other => println!("   bob    hears: {other:?}"),
        }
    }

    println!("5. One exchange, byte by byte.");
    session.world().set_tracing(true);
    session.set(alice, "k", "v")?;
    for message in session.take_trace() {
        println!("   {}\n      {}", message.topic, message.payload.escape_ascii());
        for (name, value) in &message.user_properties {
            println!("      {name}: {value}");
        }
    }
    Ok(())
}

fn set(
    key: &'static str,
    value: &'static str,
    condition: Condition<Bytes>,
    expiry: Option<Expiry>,
) -> Command<Bytes> {
    Command::Set { key: key.into(), value: value.into(), condition, expiry }
}
