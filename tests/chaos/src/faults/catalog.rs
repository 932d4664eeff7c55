//! The faults, by name.

use std::time::Duration;

use fastrand::Rng;
use rustix::process::Signal;
use tokio::time::{Instant, sleep};

use crate::faults::cluster::{Cluster, SIZE};
use crate::faults::load::Load;
use crate::faults::recorder::Recorder;
use crate::proxy::Mode;

/// Time limit of a store to stop.
const STOPS: Duration = Duration::from_secs(15);

pub(crate) struct Fault {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    pub(crate) steps: &'static [Step],
}

/// A fault and its repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    KillLeader,
    StopLeader,
    CutLeader(Mode),
    EndLeader,
    KillMember,
    LoseMajority,
    KillStandby,
    StopStandby,
    KillClients,
}

pub(crate) const ALL: [Fault; 12] = [
    Fault {
        name: "leader-killed",
        about: "the leader is killed and restarted",
        steps: &[Step::KillLeader],
    },
    Fault {
        name: "leader-stopped",
        about: "the leader is suspended for longer than its lease",
        steps: &[Step::StopLeader],
    },
    Fault {
        name: "leader-refused",
        about: "etcd refuses the leader's connections for longer than its lease",
        steps: &[Step::CutLeader(Mode::Closed)],
    },
    Fault {
        name: "leader-silenced",
        about: "packets between the leader and etcd are delayed for longer than its lease",
        steps: &[Step::CutLeader(Mode::Silent)],
    },
    Fault {
        name: "leader-ended",
        about: "the leader is terminated and hands over",
        steps: &[Step::EndLeader],
    },
    Fault {
        name: "member-killed",
        about: "the raft leader of etcd is killed and restarted",
        steps: &[Step::KillMember],
    },
    Fault {
        name: "majority-lost",
        about: "two members of etcd are killed and restarted",
        steps: &[Step::LoseMajority],
    },
    Fault {
        name: "standby-killed",
        about: "a standby is killed and restarted",
        steps: &[Step::KillStandby],
    },
    Fault {
        name: "standby-stopped",
        about: "a standby is suspended for longer than the lease",
        steps: &[Step::StopStandby],
    },
    Fault {
        name: "clients-killed",
        about: "half of the clients crash and reconnect under the same client ids",
        steps: &[Step::KillClients],
    },
    Fault {
        name: "killed-stopped",
        about: "the leader is killed, and the next leader is suspended",
        steps: &[Step::KillLeader, Step::StopLeader],
    },
    Fault {
        name: "silenced-member",
        about: "packets of the leader to etcd are delayed, and then the raft leader of etcd is killed",
        steps: &[Step::CutLeader(Mode::Silent), Step::KillMember],
    },
];

/// Faults of one run with `--quick`.
pub(crate) const QUICK: Fault = Fault {
    name: "quick",
    about: "the leader is killed, the next one suspended, and the one after that cut off from etcd",
    steps: &[Step::KillLeader, Step::StopLeader, Step::CutLeader(Mode::Silent)],
};

/// Injects a fault and repairs it. Returns the time of the fault.
pub(crate) async fn inject(
    step: Step,
    cluster: &mut Cluster,
    load: &mut Load,
    recorder: &Recorder,
    rng: &mut Rng,
) -> Result<Duration, String> {
    let lease = cluster.lease();
    let (leader, epoch) = cluster.leader().ok_or("no store leads before the fault")?;
    let standby = (leader + rng.usize(1..SIZE)) % SIZE;
    let short = Duration::from_millis(rng.u64(0..1_500));
    let long = lease + Duration::from_millis(rng.u64(500..2_500));
    let at = recorder.now();
    match step {
        Step::KillLeader => {
            store(cluster, leader)?.kill();
            sleep(short).await;
            store(cluster, leader)?.restart()?;
            cluster.wait_for_leader(epoch).await?;
        }
        Step::StopLeader => {
            store(cluster, leader)?.signal(Signal::STOP);
            sleep(long).await;
            store(cluster, leader)?.signal(Signal::CONT);
            cluster.wait_for_leader(epoch).await?;
        }
        Step::CutLeader(mode) => {
            cluster.cut(leader, mode);
            sleep(long).await;
            cluster.cut(leader, Mode::Open);
            cluster.wait_for_leader(epoch).await?;
        }
        Step::EndLeader => {
            store(cluster, leader)?.signal(Signal::TERM);
            store(cluster, leader)?.wait(STOPS).await?;
            cluster.wait_for_leader(epoch).await?;
            store(cluster, leader)?.restart()?;
        }
        Step::KillMember => restart_members(cluster, &[cluster.leading_member()], long).await?,
        Step::LoseMajority => {
            let first = cluster.leading_member();
            restart_members(cluster, &[first, (first + 1) % SIZE], long).await?;
        }
        Step::KillStandby => {
            store(cluster, standby)?.kill();
            sleep(short).await;
            store(cluster, standby)?.restart()?;
        }
        Step::StopStandby => {
            store(cluster, standby)?.signal(Signal::STOP);
            sleep(long).await;
            store(cluster, standby)?.signal(Signal::CONT);
        }
        Step::KillClients => load.kill(short).await?,
    }
    Ok(at)
}

fn store(cluster: &mut Cluster, at: usize) -> Result<&mut crate::faults::store::Store, String> {
    cluster.stores.get_mut(at).ok_or_else(|| format!("no store {at}"))
}

async fn restart_members(
    cluster: &mut Cluster,
    members: &[usize],
    away: Duration,
) -> Result<(), String> {
    let killed = Instant::now();
    for (_, member) in chosen(cluster, members) {
        member.kill();
    }
    tokio::time::sleep_until(killed + away).await;
    for (_, member) in chosen(cluster, members) {
        member.restart();
    }
    Ok(())
}

fn chosen<'a>(
    cluster: &'a mut Cluster,
    members: &'a [usize],
) -> impl Iterator<Item = (usize, &'a mut statestore_testkit::brokers::Etcd)> {
    let all = cluster.members.iter_mut().enumerate();
    all.filter(|(at, _)| members.contains(at))
}
