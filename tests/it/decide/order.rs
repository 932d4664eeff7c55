//! Order of checks: of two faults in one request, the reply names the one that is checked first.

use statestore_models::reference::{ReferenceStore, Request};
use statestore_proto::hlc::{FencingToken, HlcRef};
use statestore_proto::limits::StoreLimits;
use statestore_proto::message::{Command, Dialect, Refusal, Reply, ServiceError};
use statestore_proto::rules::{Exceeded, KeyState, Limit, RequestTimestamps, Stored, decide};
use statestore_proto::time::UnixTime;

const NOW: u64 = 1_696_374_425_000;
const FENCE: &str = "1000:0:StateStore";

/// Faults of a request, in the order of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Grammar,
    TimestampMissing,
    TimestampMalformed,
    TimestampSkew,
    TokenMalformed,
    TokenSkew,
    TokenRequired,
    TokenLower,
    Condition,
    Quota,
}

use Fault::{
    Condition, Grammar, Quota, TimestampMalformed, TimestampMissing, TimestampSkew, TokenLower,
    TokenMalformed, TokenRequired, TokenSkew,
};

const SET: [Fault; 10] = [
    Grammar,
    TimestampMissing,
    TimestampMalformed,
    TimestampSkew,
    TokenMalformed,
    TokenSkew,
    TokenRequired,
    TokenLower,
    Condition,
    Quota,
];
const VDEL: [Fault; 6] = [Grammar, TokenMalformed, TokenSkew, TokenRequired, TokenLower, Condition];

impl Fault {
    fn answer(self) -> Reply<&'static [u8]> {
        let refusal = match self {
            Grammar => Refusal::Syntax,
            TimestampMissing => Refusal::MissingTimestamp,
            TimestampMalformed | TokenMalformed => Refusal::MalformedTimestamp,
            TimestampSkew => Refusal::TimestampSkew,
            TokenSkew => Refusal::FencingTokenSkew,
            TokenRequired => Refusal::FencingTokenRequired,
            TokenLower => Refusal::FencingTokenLower,
            Condition => return Reply::NotApplied,
            Quota => Refusal::QuotaExceeded,
        };
        Reply::Error(ServiceError::Known(refusal))
    }

    /// The property that has the fault; a property has one fault at most.
    fn property(self) -> Option<&'static str> {
        match self {
            TimestampMissing | TimestampMalformed | TimestampSkew => Some("__ts"),
            TokenMalformed | TokenSkew | TokenRequired | TokenLower => Some("__ft"),
            Grammar | Condition | Quota => None,
        }
    }
}

/// A request with these faults, to a fenced key that holds `theirs`.
struct Faulty<'a> {
    verb: &'a str,
    faults: &'a [Fault],
}

impl Faulty<'_> {
    fn has(&self, fault: Fault) -> bool {
        self.faults.contains(&fault)
    }

    fn payload(&self) -> Vec<u8> {
        let mut elements = vec![self.verb, "key"];
        match (self.verb, self.has(Condition)) {
            ("SET", true) => elements.extend(["mine", "NX"]),
            ("VDEL", true) | ("SET", false) => elements.push("mine"),
            ("VDEL", false) => elements.push("theirs"),
            _ => {}
        }
        if self.verb == "SET" && self.has(Grammar) {
            elements.push("WRONG");
        }
        let mut payload = format!("*{}\r\n", elements.len());
        for element in elements {
            payload.push_str(&format!("${}\r\n{element}\r\n", element.len()));
        }
        if self.verb != "SET" && self.has(Grammar) {
            payload.push_str("\r\n");
        }
        payload.into_bytes()
    }

    fn timestamp(&self) -> Option<String> {
        let ahead = format!("{}:0:c", NOW + 60_001);
        match self.faults.iter().find(|fault| fault.property() == Some("__ts")) {
            Some(TimestampMissing) => None,
            Some(TimestampMalformed) => Some("1:2".into()),
            Some(TimestampSkew) => Some(ahead),
            _ => Some(format!("{NOW}:0:c")),
        }
    }

    fn token(&self) -> Option<String> {
        let ahead = format!("{}:0:c", NOW + 60_001);
        match self.faults.iter().find(|fault| fault.property() == Some("__ft")) {
            Some(TokenRequired) => None,
            Some(TokenMalformed) => Some("1:2".into()),
            Some(TokenSkew) => Some(ahead),
            Some(TokenLower) => Some("999:0:StateStore".into()),
            _ => Some(FENCE.into()),
        }
    }

    /// Reply of the store: its steps in their order, each a public function.
    fn answer(&self) -> Vec<u8> {
        let (payload, timestamp, token) = (self.payload(), self.timestamp(), self.token());
        let refused = |refusal| Reply::<&[u8]>::Error(ServiceError::Known(refusal));
        let fence = FencingToken::new(HlcRef::parse(FENCE).unwrap());
        let entry = Some(Stored { value: b"theirs", fence: Some(fence) });
        let reply = match Command::decode(&payload) {
            Err(error) => refused(error.kind.refusal()),
            Ok(command) => {
                let now = UnixTime::from_millis(NOW);
                let kind = command.kind();
                let issued = HlcRef::parse(FENCE).unwrap();
                let (timestamp, token) = (timestamp.as_deref(), token.as_deref());
                match RequestTimestamps::verify(kind, timestamp, token, now, &issued) {
                    Err(error) => refused(error.refusal()),
                    Ok(stamps) => {
                        let exceeded = Exceeded::new(Limit::Keys, 2, 1);
                        let exceeded = self.has(Quota).then_some(exceeded);
                        let state = KeyState { stored: entry, is_registered: false, exceeded };
                        match decide(state, &command, stamps.fencing_token) {
                            Ok(decision) => decision.reply,
                            Err(rejected) => refused(rejected.refusal()),
                        }
                    }
                }
            }
        };
        reply.encode(Dialect::Deployed)
    }

    /// Reply of the reference store, which implements the order of the protocol independently.
    fn reference_answer(&self) -> Option<Vec<u8>> {
        let command = Command::decode(&self.payload()).ok()?.map(<[u8]>::to_vec);
        let mut reference = ReferenceStore::new(StoreLimits::default());
        let now = |unix| statestore_proto::time::Now {
            unix: UnixTime::from_millis(unix),
            ..Default::default()
        };
        let mut request = Request {
            now: now(1_000),
            client: "c".into(),
            command: Command::Set {
                key: b"key".to_vec(),
                value: b"theirs".to_vec(),
                condition: statestore_proto::message::Condition::Always,
                expiry: None,
            },
            timestamp: Some("1:0:c".into()),
            token: Some(FENCE.into()),
            full: false,
        };
        assert_eq!(reference.request(&request).reply, Reply::Done);
        request.now = now(NOW);
        request.command = command;
        (request.timestamp, request.token) = (self.timestamp(), self.token());
        request.full = self.has(Quota);
        Some(reference.request(&request).reply.encode(Dialect::Deployed))
    }
}

/// Checks every fault alone and every pair that one request can have; returns the number of pairs.
fn check(verb: &str, faults: &[Fault]) -> usize {
    let mut pairs = 0;
    for (at, &first) in faults.iter().enumerate() {
        for &second in &faults[at..] {
            let both = first != second;
            if both && first.property().is_some() && first.property() == second.property() {
                continue;
            }
            let request = Faulty { verb, faults: &[first, second] };
            let expected = first.answer().encode(Dialect::Deployed);
            assert_eq!(request.answer(), expected, "{verb}: {first:?} before {second:?}");
            if let Some(found) = request.reference_answer() {
                assert_eq!(found, expected, "the reference, {verb}: {first:?} before {second:?}");
            }
            pairs += usize::from(both);
        }
    }
    pairs
}

#[test]
fn reply_names_the_fault_that_is_checked_first() {
    assert!(SET.is_sorted() && VDEL.is_sorted());
    // All pairs except two faults in one property: three of `__ts`, six of `__ft`.
    assert_eq!(check("SET", &SET), 10 * 9 / 2 - 3 - 6);
    assert_eq!(check("VDEL", &VDEL), 6 * 5 / 2 - 6);
    let del: Vec<Fault> = VDEL.into_iter().filter(|fault| *fault != Condition).collect();
    assert_eq!(check("DEL", &del), 5 * 4 / 2 - 6);
}
