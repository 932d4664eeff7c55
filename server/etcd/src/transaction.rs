//! Sends a transaction of the chain until its outcome is known.

use std::time::Duration;

use crate::batch::Part;
use crate::boot_clock::Moment;
use crate::chain::{Chain, Outcome, Verdict};
use crate::client::{Etcd, get_results};
use crate::error::Failure;
use crate::head::Head;
use crate::keys::Keys;
use crate::lease::Lease;
use crate::response_log::Slot;
use etcd_client::{Compare, CompareOp, DeleteOptions, Txn, TxnOp};

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(50);

/// Writes of a transaction besides the head.
#[derive(Default)]
pub(crate) struct Writes {
    pub(crate) part: Part,
    /// Slot of its responses.
    pub(crate) slot: Option<Slot>,
}

/// Sends the transaction that the chain has begun. Sends it again while its outcome is unknown and
/// the lease is held.
///
/// # Errors
/// [`Failure`] if the outcome stays unknown. The transaction may have taken effect, may take effect
/// later, or never.
pub(crate) async fn send(
    etcd: &Etcd,
    keys: &Keys,
    lease: &Lease,
    chain: &mut Chain,
    writes: &Writes,
) -> Result<Verdict, Failure> {
    let since = Moment::now();
    let mut last: Option<Failure> = None;
    loop {
        let left = lease.left()?.min(since.after(lease.usable_time()).left());
        if left.is_zero() {
            let (endpoints, ms) = (etcd.endpoints(), since.elapsed().as_millis());
            let reason =
                last.map_or_else(|| "this process was stopped".to_owned(), |last| last.to_string());
            return Err(Failure::Lost(format!(
                "etcd at {endpoints} accepted no transaction for {ms} ms: {reason}"
            )));
        }
        let sent = etcd.txn(transaction(keys, chain, writes), etcd.timeout().min(left)).await;
        let outcome = match sent {
            Ok(reply) if reply.succeeded() => Outcome::Succeeded,
            Ok(reply) => {
                let head = get_results(&reply).into_iter().flatten().next();
                let decoded = head.map(|head| {
                    Head::decode(head.value()).ok_or_else(|| Failure::damaged(head.key()))
                });
                Outcome::Failed(decoded.transpose()?)
            }
            Err(failure) if failure.is_transient() => {
                tracing::debug!(%failure, "sending a transaction again");
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
        if let (Some(slot), Some((responses, _))) = (writes.slot, &part.responses) {
            ops.push(TxnOp::put(keys.responses(slot.number), &responses[..], None));
            if slot.removes_older {
                let before = DeleteOptions::new().with_range(keys.responses(slot.first));
                ops.push(TxnOp::delete(keys.responses(0), Some(before)));
            }
        }
        ops.push(TxnOp::put(keys.head(), next.encode(), None));
    }
    Txn::new()
        .when([Compare::value(keys.head(), CompareOp::Equal, expected)])
        .and_then(ops)
        .or_else([TxnOp::get(keys.head(), None)])
}
