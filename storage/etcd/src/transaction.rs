//! One transaction of the chain, sent until its outcome is known.

use std::time::Duration;

use crate::answers::Place;
use crate::batch::Part;
use crate::chain::{Chain, Outcome, Verdict};
use crate::client::{Etcd, found};
use crate::clock::Moment;
use crate::error::Failure;
use crate::head::Head;
use crate::keys::Keys;
use crate::lease::Lease;
use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};

/// Pauses between two tries that fail at once.
const PAUSE: Duration = Duration::from_millis(50);

/// What a transaction writes beside the head.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) part: Part,
    /// Where its answers go.
    pub(crate) place: Option<Place>,
}

/// Sends the transaction that a chain has begun, the same one again while nobody knows what became of it and the lease holds.
///
/// # Errors
/// [`Failure`] when that cannot be found out in time: then it has taken effect, or may yet, or not.
pub(crate) async fn run(
    etcd: &Etcd,
    keys: &Keys,
    lease: &Lease,
    chain: &mut Chain,
    writes: &Writes,
) -> Result<Verdict, Failure> {
    let since = Moment::now();
    let mut last: Option<Failure> = None;
    loop {
        let left = lease.left()?.min(since.after(lease.used()).left());
        if left.is_zero() {
            let (endpoints, ms) = (etcd.endpoints(), since.elapsed().as_millis());
            let why =
                last.map_or_else(|| "this process stood still".to_owned(), |last| last.to_string());
            return Err(Failure::Lost(format!(
                "etcd at {endpoints} took no transaction for {ms} ms: {why}"
            )));
        }
        let sent = etcd.txn(transaction(keys, chain, writes), etcd.timeout().min(left)).await;
        let outcome = match sent {
            Ok(reply) if reply.succeeded() => Outcome::Succeeded,
            Ok(reply) => {
                let head = found(&reply).into_iter().flatten().next();
                let decoded = head.map(|head| {
                    Head::decode(head.value()).ok_or_else(|| Failure::damaged(head.key()))
                });
                Outcome::Failed(decoded.transpose()?)
            }
            Err(failure) if failure.is_transient() => {
                tracing::debug!(%failure, "a transaction is sent again");
                last = Some(failure);
                Outcome::NoReply
            }
            Err(failure) => return Err(failure),
        };
        match chain.outcome(outcome) {
            Verdict::Again => tokio::time::sleep(PAUSE).await,
            verdict => return Ok(verdict),
        }
    }
}

fn transaction(keys: &Keys, chain: &Chain, writes: &Writes) -> Txn {
    let expected = chain.head().encode();
    let mut ops = Vec::new();
    if let Some(next) = chain.next() {
        let part = &writes.part;
        for (key, value) in &part.writes {
            ops.push(match value {
                Some(value) => TxnOp::put(&key[..], &value[..], None),
                None => TxnOp::delete(&key[..], None),
            });
        }
        if let (Some(place), Some((answers, _))) = (writes.place, &part.answers) {
            ops.push(TxnOp::put(keys.answers(place.number), &answers[..], None));
            if place.drops {
                let before = DeleteOptions::new().with_range(keys.answers(place.first));
                ops.push(TxnOp::delete(keys.answers(0), Some(before)));
            }
        }
        ops.push(TxnOp::put(keys.head(), next.encode(), None));
    }
    Txn::new()
        .when([Compare::value(keys.head(), CompareOp::Equal, expected)])
        .and_then(ops)
        .or_else([TxnOp::get(keys.head(), None)])
}
