//! One SET and one GET by hand: what a client publishes, what a store makes of it, what comes back.
//!
//! `cargo run --release --example exchange -p statestore-proto`

use std::error::Error;

use statestore_proto::hlc::{Hlc, HybridClock, NodeId, Version};
use statestore_proto::message::{Command, Condition, Dialect, Expiry, Reply, property};
use statestore_proto::rules::{Change, Entry, Stamps, State, decide};
use statestore_proto::time::UnixTime;
use statestore_proto::topic::{self, ResponseTopic};

fn main() -> Result<(), Box<dyn Error>> {
    let now = UnixTime::from_millis(1_696_374_425_000);
    let mut client = HybridClock::new(NodeId::new("CLIENT")?);
    let mut store = Store { clock: HybridClock::new(NodeId::new("StateStore")?), entry: None };
    let response_topic = ResponseTopic::new("CLIENT")?.to_string();
    topic::check_response(&response_topic)?;

    println!("requests go to   {}", topic::REQUEST);
    println!("replies come to  {response_topic}\n");

    let expiry = Expiry::from_millis(10_000);
    for command in [
        Command::Set {
            key: "Lock",
            value: "Client1",
            condition: Condition::IfAbsentOrEqual,
            expiry,
        },
        Command::Set {
            key: "Lock",
            value: "Client2",
            condition: Condition::IfAbsentOrEqual,
            expiry,
        },
        Command::Get { key: "Lock" },
    ] {
        let timestamp = client.tick(now)?.encode();
        let request = command.encode();
        println!("request  {}   {}={timestamp}", request.escape_ascii(), property::TIMESTAMP);

        let (reply, version) = store.answer(&request, &timestamp, now)?;
        let version = version
            .map_or(String::new(), |version| format!("   {}={version}", property::TIMESTAMP));
        println!("reply    {}{version}", reply.escape_ascii());
        println!("         that is {:?}\n", Reply::decode(&reply, command.kind())?);
    }
    Ok(())
}

/// A store of one key.
struct Store {
    clock: HybridClock,
    entry: Option<(Vec<u8>, Version)>,
}

impl Store {
    fn answer(
        &mut self,
        request: &[u8],
        timestamp: &str,
        now: UnixTime,
    ) -> Result<(Vec<u8>, Option<Hlc>), Box<dyn Error>> {
        let command = Command::decode(request)?;
        let stamps = Stamps::verify(command.kind(), Some(timestamp), None, now)?;
        let entry = self.entry.as_ref().map(|(value, _)| Entry { value, fence: None });
        let decision = decide(State { entry, ..State::default() }, &command, stamps.fencing_token);
        let reply = decision.reply.encode(Dialect::Deployed);
        if let (Change::Put, Command::Set { value, .. }, Some(received)) =
            (decision.change, command, stamps.latest())
        {
            let version = Version::new(self.clock.receive(now, received)?);
            self.entry = Some((value.to_vec(), version));
        }
        let version = self.entry.as_ref().map(|(_, version)| version.hlc().clone());
        Ok((reply, version))
    }
}
