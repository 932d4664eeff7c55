//! The lease of a leader: renewed by a task of its own, and counted by a clock here that goes on in a suspend.
//!
//! A leader counts from before it asked, and stops a margin early. etcd counts from a later moment, so whoever is granted the
//! lead next has it after that, unless this process was stopped between looking at the clock and acting on it.

use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::client::Etcd;
use crate::clock::Moment;
use crate::error::Failure;
use crate::head::Head;
use crate::keys::Keys;
use crate::known::Known;
use crate::role::RoleSender;

/// Pauses between two tries to renew that fail at once.
const PAUSE: Duration = Duration::from_millis(200);

/// Part of its time that a leader leaves unused: for the answers that it has begun to give, and for clocks that run unequally.
const MARGIN_PART: u32 = 5;

/// A lease that is renewed until it is dropped, or until that fails for too long. A leader's role says so then.
#[derive(Debug)]
pub(crate) struct Lease {
    id: i64,
    used: Duration,
    state: watch::Receiver<State>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug)]
enum State {
    /// It holds until then.
    Until(Moment),
    /// It does not, for this reason.
    Lost(String),
}

impl Lease {
    /// Asks for a lease and renews it from now on. Tells when it is lost, and gives it back then as soon as etcd can be reached.
    pub(crate) async fn grant(
        etcd: &Etcd,
        ttl: Duration,
        role: RoleSender,
        followed: Followed,
    ) -> Result<Self, Failure> {
        let asked = Moment::now();
        // etcd may grant more; nobody is to wait for longer than was asked for.
        let (id, granted) = etcd.grant(ttl).await?;
        let used = ttl.min(granted) * (MARGIN_PART - 1) / MARGIN_PART;
        let until = asked.after(used);
        let (sender, state) = watch::channel(State::Until(until));
        let etcd = etcd.clone();
        let task = tokio::spawn(async move {
            let lost = renew(&etcd, id, used, until, &sender, &followed).await;
            tracing::info!(reason = %lost, "a lease is lost");
            // In this order, so that whoever is told that it leads finds out.
            sender.send_replace(State::Lost(lost.clone()));
            role.lose(lost);
            // Of its own, since this one ends with its store. There is one of them at most: without etcd no lead is won.
            tokio::spawn(give_back(etcd, id));
        });
        Ok(Self { id, used, state, task })
    }

    pub(crate) const fn id(&self) -> i64 {
        self.id
    }

    /// How much of its time is used, after each renewal.
    pub(crate) const fn used(&self) -> Duration {
        self.used
    }

    /// How long it holds; zero if it does not any more.
    ///
    /// # Errors
    /// [`Failure::Lost`] when it is known to be lost.
    pub(crate) fn left(&self) -> Result<Duration, Failure> {
        match &*self.state.borrow() {
            State::Until(until) => Ok(until.left()),
            State::Lost(reason) => Err(Failure::Lost(reason.clone())),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        self.left().is_ok_and(|left| !left.is_zero())
    }

    /// Lets it run out.
    pub(crate) fn stop(&self) {
        self.task.abort();
    }

    /// Gives it back, so that nobody needs to wait until it runs out.
    pub(crate) async fn revoke(&self, etcd: &Etcd) -> Result<(), Failure> {
        self.stop();
        etcd.revoke(self.id).await
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Renews until that fails for too long, or the chain is not this store's any more; why it is lost.
async fn renew(
    etcd: &Etcd,
    id: i64,
    used: Duration,
    mut until: Moment,
    state: &watch::Sender<State>,
    followed: &Followed,
) -> String {
    let mut pause = used / 3;
    let mut last = None;
    loop {
        tokio::time::sleep(pause.min(until.left())).await;
        let (asked, left) = (Moment::now(), until.left());
        if left.is_zero() {
            let why = last.map_or_else(
                || "this process stood still, or the machine was suspended".to_owned(),
                |last: Failure| last.to_string(),
            );
            return format!("the lease was not renewed for {used:?}: {why}");
        }
        match etcd.renew(id, etcd.timeout().min(left)).await {
            Ok(true) => {
                until = asked.after(used);
                pause = used / 3;
                last = None;
                state.send_replace(State::Until(until));
                if let Err(failure) = followed.look(etcd, id).await {
                    return failure.to_string();
                }
            }
            Ok(false) => return "etcd has ended the lease".to_owned(),
            Err(failure) => {
                tracing::debug!(%failure, "the lease was not renewed yet");
                last = Some(failure);
                pause = PAUSE;
            }
        }
    }
}

/// Ends a lease that is of no use, so that nobody has to wait for its end: an etcd that had no leader itself keeps
/// leases for longer than was asked for.
async fn give_back(etcd: Etcd, id: i64) {
    while etcd.revoke(id).await.is_err_and(|failure| failure.is_transient()) {
        tokio::time::sleep(PAUSE).await;
    }
}

/// The chain, as a leader that has nothing to commit looks after it.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) keys: Keys,
    pub(crate) known: Known,
}

impl Followed {
    /// Whether the head is what the writer with this lease left there, or what it has just written. What cannot be found out is
    /// left to the next time.
    ///
    /// # Errors
    /// [`Failure`] when it is not.
    async fn look(&self, etcd: &Etcd, writer: i64) -> Result<(), Failure> {
        // Before etcd is asked, since the writer goes on meanwhile.
        let Some(seen) = self.known.current().filter(|seen| seen.writer == writer) else {
            return Ok(());
        };
        let Ok(found) = etcd.find(&[self.keys.head()]).await else { return Ok(()) };
        let found = found.entries.into_iter().flatten().next();
        judge(&self.keys, &seen, found.and_then(|head| Head::decode(head.value())).as_ref())
    }
}

/// Whether a head that was found is that of the writer that left the other one, or a later one.
fn judge(keys: &Keys, seen: &Head, found: Option<&Head>) -> Result<(), Failure> {
    match found {
        Some(found) if found.epoch > seen.epoch => {
            Err(Failure::Deposed(format!("another leads in epoch {}", found.epoch)))
        }
        Some(found) if found.writer == seen.writer && found.place() >= seen.place() => Ok(()),
        found => Err(Failure::went_back(keys, seen, found)),
    }
}

#[cfg(test)]
mod tests {
    use statestore_proto::time::UnixTime;

    use super::*;

    #[test]
    fn a_leader_knows_its_own_chain() {
        let head = |epoch, sequence, writer| Head {
            epoch,
            sequence,
            writer,
            ..Head::first(UnixTime::default())
        };
        let (keys, seen) = (Keys::new("/ss/shop/"), head(3, 10, 7));
        for same in [head(3, 10, 7), head(3, 99, 7)] {
            assert_eq!(judge(&keys, &seen, Some(&same)), Ok(()));
        }
        for next in [head(4, 11, 8), head(9, 2, 7)] {
            assert!(matches!(judge(&keys, &seen, Some(&next)), Err(Failure::Deposed(_))));
        }
        for back in [Some(head(3, 9, 7)), Some(head(3, 11, 8)), Some(head(2, 99, 7)), None] {
            let judged = judge(&keys, &seen, back.as_ref());
            assert!(matches!(judged, Err(Failure::WentBack { .. })), "{back:?}: {judged:?}");
        }
    }
}
