//! Election: a standby becomes the leader in two steps. First it creates the leader key with a
//! lease, so only one standby campaigns at a time. Then it raises the epoch, which fences the
//! former leader.

use statestore_proto::time::UnixTime;

use crate::chain::{Chain, Verdict};
use crate::client::Etcd;
use crate::error::Failure;
use crate::head::Head;
use crate::keys::Keys;
use crate::known_head::KnownHead;
use crate::lease::{HeadCheck, Lease};
use crate::options::Options;
use crate::role::{Leader, RoleSender, encode_leader};
use crate::transaction::{self, Writes};
use crate::wall_clock;

/// Result of a won election.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) lease: Lease,
    /// The chain after the claim.
    pub(crate) chain: Chain,
    pub(crate) since: UnixTime,
}

/// Tries to become the leader; returns `None` if another store leads.
///
/// # Errors
/// [`Failure`] if etcd fails. This store does not lead then.
pub(crate) async fn run(
    etcd: &Etcd,
    keys: &Keys,
    options: &Options,
    role: &RoleSender,
    known: &KnownHead,
) -> Result<Option<Won>, Failure> {
    let head_check = HeadCheck { keys: keys.clone(), known: known.clone() };
    let lease = Lease::grant(etcd, options.lease, role.clone(), head_check).await?;
    let since = wall_clock::now();
    let (name, address) = (options.name.clone(), options.address.clone());
    let leader = encode_leader(&Leader { name, address, since });
    let claimed = async {
        match etcd.put_leader(&keys.leader(), leader, lease.id()).await? {
            true => claim(etcd, keys, &lease).await,
            false => Ok(None),
        }
    };
    let claimed = claimed.await;
    if let Ok(Some(chain)) = claimed {
        return Ok(Some(Won { lease, chain, since }));
    }
    // Otherwise no store could lead before the lease expires.
    let _ = lease.revoke(etcd).await;
    claimed.map(|_| None)
}

/// Raises the epoch; returns `None` if another store has raised it first.
async fn claim(etcd: &Etcd, keys: &Keys, lease: &Lease) -> Result<Option<Chain>, Failure> {
    let found = etcd.find(&[keys.head()]).await?;
    let head = found.entries.into_iter().next().flatten();
    let head = head.as_ref().and_then(|head| Head::decode(head.value()));
    let mut seen = head.ok_or_else(|| Failure::damaged(&keys.head()))?;
    loop {
        let epoch = seen.epoch;
        let mut chain = Chain::claim(seen, lease.id(), wall_clock::now());
        match transaction::send(etcd, keys, lease, &mut chain, &Writes::default()).await? {
            Verdict::Done => return Ok(Some(chain)),
            // The former leader has committed since then. It can do so until the claim.
            Verdict::Deposed { by } if by.epoch == epoch => seen = by,
            Verdict::Again | Verdict::Deposed { .. } | Verdict::Broken { .. } => return Ok(None),
        }
    }
}
