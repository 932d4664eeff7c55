//! A store that leads, or stands by for the one that does.

use std::process::ExitCode;
use std::time::Duration;

use statestore_embedded::{Broker, Referral};
use statestore_etcd::{EtcdJournal, Leader, Leadership, Options, Role, RoleWatch};
use statestore_proto::store::{Durability, StoreConfig};
use statestore_tokio::{Status, StatusWatch, StoreService};

use crate::args::{Durable, EtcdAt, Reads, Serve};
use crate::etcd;
use crate::failure::Failure;
use crate::host::{Host, Hosted};
use crate::output::say;
use crate::signals::Signals;

/// Before the next try to stand by, and after many.
const PAUSE_MIN: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Why a store is not to go on.
enum End {
    /// It was told to stop.
    Told,
    /// Another may lead, or etcd cannot be reached: it may stand by again.
    Over(String),
    /// Another try would not mend it.
    Failed(Failure),
}

/// Stands by and leads in turns, until it is told to stop.
pub(crate) async fn run(
    args: &Serve,
    host: &Host<'_>,
    config: impl Fn() -> Result<StoreConfig, Failure>,
    mut stop: Signals,
) -> Result<ExitCode, Failure> {
    let options = options(args, host.broker())?;
    let mut pause = PAUSE_MIN;
    let mut former: Option<Leadership> = None;
    // An outage that goes on is said once.
    let mut said: Option<String> = None;
    loop {
        host.refer(Referral::Elsewhere);
        let begun = tokio::time::Instant::now();
        let journal = match &former {
            None => EtcdJournal::new(options.clone()),
            Some(former) => EtcdJournal::after(options.clone(), former),
        };
        let journal = journal.map_err(Failure::bad_input)?;
        let (role, leadership) = (journal.role(), journal.leadership());
        let service = StoreService::builder().journal(journal);
        let service = service.config(kept(config()?, args)).map_err(Failure::bad_input)?;
        let hosted = match args.etcd.etcd_reads {
            Reads::Strict => host.spawn(service),
            Reads::Lease => host.spawn_leased(service, leadership.clone()),
        };
        let end = Reign { args, host, hosted: &hosted, leader: None }.run(role, &mut stop).await;
        // What is decided is still committed and said, unless another leads by now.
        hosted.service.shutdown().await;
        match end {
            End::Told => {
                resign(&leadership).await;
                host.refer(Referral::Elsewhere);
                return Ok(ExitCode::SUCCESS);
            }
            End::Failed(failure) => {
                resign(&leadership).await;
                return Err(failure);
            }
            End::Over(reason) => {
                // Of a lead that was lost for another reason than its lease. It runs out where etcd cannot be reached.
                let _ = leadership.resign().await;
                if said.as_ref() != Some(&reason) {
                    say(format_args!("{reason}; standing by again"));
                }
                said = Some(reason);
            }
        }
        former = Some(leadership);
        // Whoever has a session here must not find what was so when this store led.
        host.restart().await?;
        host.refer(Referral::Elsewhere);
        pause = if begun.elapsed() > PAUSE_MAX { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = host.told_to_stop(&mut stop) => {
                return Ok(ExitCode::SUCCESS);
            }
        }
    }
}

async fn resign(leadership: &Leadership) {
    if let Err(error) = leadership.resign().await {
        say(format_args!(
            "the lead could not be given back, so the next store waits for its lease: {error}"
        ));
    }
}

/// One turn of standing by and leading.
struct Reign<'a> {
    args: &'a Serve,
    host: &'a Host<'a>,
    hosted: &'a Hosted,
    /// Who was said to lead.
    leader: Option<Option<Leader>>,
}

impl Reign<'_> {
    async fn run(mut self, mut role: RoleWatch, stop: &mut Signals) -> End {
        let mut status = self.hosted.service.status();
        let told = self.host.told_to_stop(stop);
        tokio::pin!(told);
        let (mut now, mut is_ready) = (Some(role.current()), false);
        loop {
            if let Some(end) = now.take().and_then(|role| self.follow(role)) {
                return end;
            }
            tokio::select! {
                news = role.changed() => match news {
                    Some(role) => now = Some(role),
                    // Its last word is there.
                    None => return self.follow(role.current()).unwrap_or_else(|| ended(&mut status)),
                },
                news = status.changed() => match news {
                    Some(Status::Online) if !is_ready => {
                        is_ready = true;
                        self.host.refer(Referral::Here);
                        let text = keeps(self.args);
                        self.host.say_ready(self.hosted, Some(&text));
                    }
                    Some(Status::JournalFailed { .. }) | None => {
                        return self.follow(role.current()).unwrap_or_else(|| ended(&mut status));
                    }
                    Some(Status::Failed { .. }) => return ended(&mut status),
                    Some(_) => {}
                },
                () = &mut told => return End::Told,
            }
        }
    }

    /// Does what a role means; gives the end if it is one.
    fn follow(&mut self, role: Role) -> Option<End> {
        match role {
            Role::Standby { leader, .. } => {
                self.host.refer(match &leader {
                    Some(leader) if !leader.address.is_empty() => Referral::Server(&leader.address),
                    _ => Referral::Elsewhere,
                });
                if self.leader.as_ref() != Some(&leader) {
                    let line = match &leader {
                        Some(Leader { name, address, .. }) if !address.is_empty() => {
                            format!("standing by: {name} leads, at {address}")
                        }
                        Some(leader) => format!("standing by: {} leads", leader.name),
                        None => "standing by: nobody is known to lead".to_owned(),
                    };
                    self.host.stands_by(&line);
                    say(line);
                    self.leader = Some(leader);
                }
                None
            }
            Role::Leading { epoch, .. } => {
                say(format_args!("leading, in epoch {epoch}"));
                self.host.say_if_slow(&self.hosted.service);
                None
            }
            Role::Deposed { reason } => Some(End::Over(format!("deposed: {reason}"))),
            Role::Lost { reason } => Some(End::Over(reason)),
            Role::Failed { reason } => Some(End::Failed(Failure::bad_input(reason))),
            _ => None,
        }
    }
}

/// What the service says of its end.
fn ended(status: &mut StatusWatch) -> End {
    let status = status.current();
    let reason = status.reason().unwrap_or("the store has ended").to_owned();
    match status {
        Status::Failed { .. } => End::Failed(Failure::stopped(Some(&reason))),
        _ => End::Over(reason),
    }
}

/// What etcd keeps.
fn kept(config: StoreConfig, args: &Serve) -> StoreConfig {
    config
        .durability(match args.kept.durable.unwrap_or(Durable::All) {
            Durable::Requested => Durability::Requested,
            Durable::All => Durability::All,
        })
        // The sessions of another broker outlive this store, and their clients do not register again.
        .durable_watches(!args.broker.is_empty())
        .linearizable_reads(args.etcd.etcd_reads == Reads::Strict)
}

fn keeps(args: &Serve) -> String {
    let what = match args.kept.durable.unwrap_or(Durable::All) {
        Durable::Requested => "what clients ask to be kept survives",
        Durable::All => "everything survives",
    };
    let EtcdAt { etcd, etcd_prefix, .. } = &args.etcd.at;
    format!("; {what} in etcd at {}, below {etcd_prefix}", etcd.join(","))
}

fn options(args: &Serve, broker: Option<&Broker>) -> Result<Options, Failure> {
    let options = etcd::options(&args.etcd.at)?.lease(args.etcd.etcd_lease);
    let address = args.etcd.advertise.clone().or_else(|| {
        let own = broker?.local_addr();
        (!own.ip().is_unspecified()).then(|| own.to_string())
    });
    let name = args.etcd.etcd_name.clone().unwrap_or_else(|| {
        let machine = rustix::system::uname();
        format!("{}:{}", machine.nodename().to_string_lossy(), std::process::id())
    });
    Ok(options.name(name).advertise(address.unwrap_or_default()))
}
