//! The whole protocol on one screen, with no broker and no network, in simulated time.
//!
//! `cargo run --release --example quickstart -p statestore-loopback`

use std::error::Error;
use std::time::Duration;

use statestore_loopback::Hub;
use statestore_tokio::WatchEvent;

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let hub = Hub::with_store().await?;
    let alice = hub.connect("alice")?;
    let bob = hub.connect("bob")?;

    println!("1. Values have versions.");
    let version = alice.set("thermostat", "21").await?;
    println!("   alice  SET thermostat 21              +OK, version {version}");
    let found = bob.get("thermostat").await?.ok_or("the value was just set")?;
    println!(
        "   bob    GET thermostat                 {}, the same version",
        found.value.escape_ascii()
    );

    println!("2. A write can depend on the current value.");
    let applied = bob.set("thermostat", "19").if_absent().await?;
    println!(
        "   bob    SET thermostat 19 NX           {}",
        if applied.is_none() { "not applied" } else { "applied" }
    );

    println!("3. A lock is a key; the version of the SET is a token that fences earlier holders.");
    let lease = Duration::from_secs(10);
    let acquire = |client: &statestore_tokio::StateStore, holder: &'static str| {
        client.set("lock", holder).if_absent_or_equal().expires_after(lease)
    };
    let first = acquire(&alice, "alice").await?.ok_or("the lock is free")?.to_fencing_token();
    println!("   alice  SET lock alice NEX PX 10000    +OK, fencing token {first}");
    println!("   ...    11 seconds pass, the lease of alice expires");
    tokio::time::sleep(Duration::from_secs(11)).await;
    let second = acquire(&bob, "bob").await?.ok_or("the lock is free")?.to_fencing_token();
    println!("   bob    SET lock bob NEX PX 10000      +OK, fencing token {second}");
    bob.set("valve", "open").fencing_token(second).await?;
    println!("   bob    SET valve open, with his token +OK");
    if let Err(error) = alice.set("valve", "shut").fencing_token(first).await {
        println!("   alice  SET valve shut, with hers      {error}");
    }

    println!("4. Watches report changes.");
    let mut watch = bob.watch("thermostat").await?;
    while let Some(event) = watch.next().await {
        match event {
            WatchEvent::Changed { value: Some(value), .. } => {
                println!("   bob    receives: {}", value.escape_ascii());
                if value == "23" {
                    alice.del("thermostat").await?;
                }
            }
            WatchEvent::Changed { value: None, .. } => {
                println!("   bob    receives: deleted");
                break;
            }
            WatchEvent::Live => {
                println!("   bob    receives: the value is current, changes follow");
                alice.set("thermostat", "23").await?;
            }
            other => println!("   bob    receives: {other:?}"),
        }
    }

    println!("5. One exchange, byte by byte.");
    let observer = hub.raw_client("observer")?;
    observer.subscribe("#");
    alice.set("k", "v").await?;
    for _request_and_response in 0..2 {
        let message = observer.next().await?;
        println!("   {}\n      {}", message.topic, message.payload.escape_ascii());
        for (name, value) in &message.user_properties {
            println!("      {name}: {value}");
        }
    }
    Ok(())
}
