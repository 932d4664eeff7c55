//! Two writers over a network that loses, delays and repeats messages: etcd contains one chain,
//! with every transaction that a writer considers done.

use statestore_proto::time::UnixTime;

use super::*;

fn first() -> Head {
    Head::first(UnixTime::from_millis(1))
}

fn at(millis: u64) -> UnixTime {
    UnixTime::from_millis(millis)
}

#[test]
fn transaction_after_a_lost_reply_recognizes_its_own_head() {
    let mut chain = Chain::claim(first(), 7, at(2));
    let next = chain.next().unwrap().clone();
    assert_eq!((next.epoch, next.sequence, next.writer), (1, 1, 7));
    assert_eq!(chain.outcome(Outcome::NoReply), Verdict::Again);
    assert_eq!(chain.next(), Some(&next), "the same transaction is sent again");
    assert_eq!(chain.outcome(Outcome::Failed(Some(next.clone()))), Verdict::Done);
    assert_eq!(chain.head(), &next);
}

#[test]
fn simultaneous_claims_differ_by_their_writer() {
    let winner = Chain::claim(first(), 7, at(2));
    let mut loser = Chain::claim(first(), 8, at(2));
    let by = winner.next().unwrap().clone();
    assert_eq!(loser.outcome(Outcome::Failed(Some(by.clone()))), Verdict::Deposed { by });
}

#[test]
fn barrier_keeps_the_head_and_detects_a_later_writer() {
    let mut chain = Chain::claim(first(), 7, at(2));
    assert_eq!(chain.outcome(Outcome::Succeeded), Verdict::Done);
    let head = chain.head().clone();
    chain.begin_barrier();
    assert_eq!(chain.next(), None);
    assert_eq!(chain.outcome(Outcome::Succeeded), Verdict::Done);
    assert_eq!(chain.head(), &head);
    let by = Chain::claim(head, 8, at(3)).next().unwrap().clone();
    assert_eq!(chain.outcome(Outcome::Failed(Some(by.clone()))), Verdict::Deposed { by });
}

#[test]
fn missing_or_earlier_head_is_broken_and_not_deposed() {
    let mut chain = Chain::claim(first(), 7, at(2));
    assert_eq!(chain.outcome(Outcome::Succeeded), Verdict::Done);
    let (mut gone, mut back) = (chain.clone(), chain);
    gone.begin(None, at(3));
    assert_eq!(gone.outcome(Outcome::Failed(None)), Verdict::Broken { found: None });
    back.begin(None, at(3));
    let found = Some(first());
    assert_eq!(back.outcome(Outcome::Failed(found.clone())), Verdict::Broken { found });
}

/// A transaction in transit.
#[derive(Clone)]
struct Sent {
    writer: usize,
    attempt: u64,
    expected: Head,
    next: Head,
}

struct Reply {
    writer: usize,
    attempt: u64,
    outcome: Outcome,
}

/// Model of etcd with one key; the defective variant does not compare.
struct Server {
    compares: bool,
    history: Vec<Head>,
}

impl Server {
    fn head(&self) -> Head {
        self.history.last().cloned().unwrap_or_else(first)
    }

    fn transact(&mut self, sent: &Sent) -> Outcome {
        if self.compares && self.head() != sent.expected {
            return Outcome::Failed(Some(self.head()));
        }
        self.history.push(sent.next.clone());
        Outcome::Succeeded
    }
}

struct Writer {
    lease: i64,
    chain: Option<Chain>,
    /// Number of the attempt. Replies to earlier attempts are ignored.
    attempt: u64,
    waits: bool,
    done: Vec<Head>,
}

impl Writer {
    const fn new(lease: i64) -> Self {
        Self { lease, chain: None, attempt: 0, waits: false, done: Vec::new() }
    }

    fn send(&mut self, writer: usize) -> Option<Sent> {
        let chain = self.chain.as_ref()?;
        self.attempt += 1;
        self.waits = true;
        let (expected, next) = (chain.head().clone(), chain.next()?.clone());
        Some(Sent { writer, attempt: self.attempt, expected, next })
    }

    fn handle(&mut self, outcome: Outcome) {
        let Some(chain) = &mut self.chain else { return };
        let next = chain.next().cloned();
        match chain.outcome(outcome) {
            Verdict::Done => {
                self.done.extend(next);
                self.waits = false;
            }
            Verdict::Again => {}
            Verdict::Deposed { .. } | Verdict::Broken { .. } => {
                self.chain = None;
                self.waits = false;
            }
        }
    }
}

/// Runs a random history and checks it. Returns the number of finished transactions.
fn run(seed: u64, compares: bool) -> Result<usize, String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut server = Server { compares, history: Vec::new() };
    let mut writers = [Writer::new(7), Writer::new(8)];
    let (mut requests, mut replies) = (Vec::<Sent>::new(), Vec::<Reply>::new());
    for step in 0..600 {
        let index = rng.usize(..2);
        match rng.u8(..8) {
            0..2 => {
                let writer = &mut writers[index];
                match &mut writer.chain {
                    // The writer sees the current head or an earlier one.
                    None if rng.u8(..4) == 0 => {
                        let from = server.history.len().saturating_sub(rng.usize(..3) + 1);
                        let seen = server.history.get(from).cloned().unwrap_or_else(first);
                        writer.chain = Some(Chain::claim(seen, writer.lease, at(step)));
                        writer.lease += 10;
                    }
                    None => continue,
                    // No reply arrived in time, so the transaction is sent again.
                    Some(_) if writer.waits => writer.handle(Outcome::NoReply),
                    Some(chain) => chain.begin(None, at(step)),
                }
                requests.extend(writer.send(index));
            }
            2..5 if !requests.is_empty() => {
                let place = rng.usize(..requests.len());
                let sent = requests[place].clone();
                if rng.bool() {
                    requests.swap_remove(place);
                }
                if rng.u8(..5) > 0 {
                    let outcome = server.transact(&sent);
                    replies.push(Reply { writer: sent.writer, attempt: sent.attempt, outcome });
                }
            }
            5..7 if !replies.is_empty() => {
                let place = rng.usize(..replies.len());
                let Reply { writer, attempt, outcome } = replies.swap_remove(place);
                let writer = &mut writers[writer];
                let is_current = writer.waits && writer.attempt == attempt;
                if is_current && rng.u8(..4) > 0 {
                    writer.handle(outcome);
                }
            }
            _ => {}
        }
    }
    check_history(&server, &writers)
}

fn check_history(server: &Server, writers: &[Writer]) -> Result<usize, String> {
    let mut before = first();
    for head in &server.history {
        if head.sequence != before.sequence + 1 || head.epoch < before.epoch {
            return Err(format!("{head:?} after {before:?}"));
        }
        if head.epoch == before.epoch && head.writer != before.writer {
            return Err(format!("two writers in epoch {}", head.epoch));
        }
        before = head.clone();
    }
    let done = writers.iter().flat_map(|writer| &writer.done);
    for head in done.clone() {
        let times = server.history.iter().filter(|other| *other == head).count();
        if times != 1 {
            return Err(format!("{head:?} is in the history {times} times"));
        }
    }
    Ok(done.count())
}

#[test]
fn two_writers_extend_one_chain() {
    let (mut done, mut productive) = (0, 0);
    for seed in 0..3_000 {
        let transactions = run(seed, true).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        done += transactions;
        productive += usize::from(transactions > 0);
    }
    assert!(done > 10_000 && productive > 2_500, "{done} transactions in {productive} seeds");
}

#[test]
fn check_fails_without_the_compare() {
    let found = (0..200).filter(|seed| run(*seed, false).is_err()).count();
    assert!(found > 150, "{found} of 200");
}
