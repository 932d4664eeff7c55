//! `dev`: a store for development, with certificates and tokens as in a cluster.

mod certificates;
mod directory;
mod environment;
mod listeners;
mod summary;
mod tokens;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::process::{Signal, kill_current_process_group};
use statestore_server::{Event, Server, ServerError};
use tokio::process::Command;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Dev, DevListen, DevLogin, DevRun, DevVerb};
use crate::dev::directory::Directory;
use crate::dev::environment::{ALL, CLIENT_ID, Endpoint};
use crate::dev::tokens::{Account, TokenSigner};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::job::{Job, exit_code, not_started};
use crate::output::{self, notice};
use crate::serve;
use crate::signals::{self, Signals};

/// Interval of checks whether tokens or certificates must be renewed.
const CHECK: Duration = Duration::from_secs(10);

/// Time between SIGTERM and SIGKILL for the command.
const GRACE: Duration = Duration::from_secs(10);

pub(crate) async fn run(args: Dev) -> Result<ExitCode, Failure> {
    let args = match args.verb {
        Some(DevVerb::Env(env)) => {
            output::raw(environment::print(&env)?.as_bytes())?;
            return Ok(Exit::Success.into());
        }
        None => args.run,
    };
    if args.logins.login == DevLogin::None && args.listen.listen_all && !args.command.is_empty() {
        return Err(Failure::bad_input(
            "--login none: with --listen-all the listener without login is not open; use token or \
             certificate",
        ));
    }
    // Before anything else: until its handler is installed, a signal kills the process.
    let mut signals = Signals::for_job()?;
    let mut session = Session::open(&args)?;
    let server = start(&args, &session.directory).await?;
    server.wait_ready().await.map_err(|error| failure(&error, &args.listen))?;
    let endpoint = endpoint(&args.listen, &server);
    let ended = match environment::write(&endpoint, &mut session.directory) {
        Ok(()) => until_ended(&args, &mut session, &endpoint, &server, &mut signals).await,
        Err(failure) => Err(failure),
    };
    let stopped = server.stop().await;
    let (code, typed) = ended?;
    stopped.map_err(|error| failure(&error, &args.listen))?;
    if let Some(signal) = typed {
        let _ = kill_current_process_group(signal);
    }
    Ok(code)
}

/// Credentials on disk, and what renews them.
struct Session {
    directory: Directory,
    signer: TokenSigner,
    accounts: Vec<Account>,
    /// Names of the server.
    names: Vec<String>,
}

impl Session {
    fn open(args: &DevRun) -> Result<Self, Failure> {
        let accounts = args.logins.service_account.iter().map(|text| Account::parse(text));
        let accounts = accounts.collect::<Result<Vec<_>, _>>()?;
        let names = certificates::names(&args.listen.host)?;
        let mut directory = Directory::open(&args.directory.dir)?;
        // It has the ports of the previous run.
        directory.remove(environment::ENV)?;
        certificates::renew(&mut directory, &names, now())?;
        let mut signer = TokenSigner::open(&mut directory, args.logins.token_lifetime)?;
        signer.renew(&mut directory, &accounts, now())?;
        Ok(Self { directory, signer, accounts, names })
    }

    /// Renews what expires soon. Reports errors, since the store can continue.
    async fn renew(&mut self, server: &Server) {
        let tokens = self.signer.renew(&mut self.directory, &self.accounts, now());
        if let Err(error) = tokens {
            notice(format_args!("tokens not renewed: {error}"));
        }
        match certificates::renew(&mut self.directory, &self.names, now()) {
            Ok(false) => {}
            Ok(true) => serve::report_reload(&server.reload().await),
            Err(error) => notice(format_args!("certificates not renewed: {error}")),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "validities are dates")]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

async fn start(args: &DevRun, directory: &Directory) -> Result<Server, Failure> {
    let config = listeners::config(args, directory);
    let mut server = Server::builder(config).share_sessions().on_event(report);
    for listener in listeners::listeners(&args.listen, directory)? {
        server = server.listener(listener);
    }
    server.start().await.map_err(|error| failure(&error, &args.listen))
}

fn report(event: &Event) {
    match event {
        Event::Ready(_) | Event::Stopping => {}
        Event::Reloaded(reloaded) => serve::report_reload(reloaded),
        event => notice(event),
    }
}

/// The error of the server, with the option of the port that is in use.
fn failure(error: &ServerError, listen: &DevListen) -> Failure {
    match listeners::port_failure(error, listen) {
        Some(failure) => failure,
        None => serve::failure(error, &crate::args::Origins::default()),
    }
}

fn endpoint(listen: &DevListen, server: &Server) -> Endpoint {
    let addresses = server.broker().map(statestore_server::Broker::local_addrs).unwrap_or_default();
    let port = |number: usize| addresses.get(number).map_or(0, std::net::SocketAddr::port);
    let host = listen.host.first().filter(|_| listen.listen_all);
    let host = host.cloned().unwrap_or_else(|| "localhost".to_owned());
    match listen.listen_all {
        true => Endpoint {
            host,
            certificate_port: port(0),
            token_port: port(1),
            plain_port: None,
            websocket_port: None,
        },
        false => Endpoint {
            host,
            certificate_port: port(0),
            token_port: port(1),
            plain_port: Some(port(2)),
            websocket_port: Some(port(3)),
        },
    }
}

/// Exit code, and the signal from the terminal that ended the command.
type Ended = (ExitCode, Option<Signal>);

/// Runs until a signal, or until the command ends.
async fn until_ended(
    args: &DevRun,
    session: &mut Session,
    endpoint: &Endpoint,
    server: &Server,
    signals: &mut Signals,
) -> Result<Ended, Failure> {
    let mut job = match args.command.split_first() {
        None => {
            let text = summary::table(args, endpoint, &session.directory);
            // The store does not wait for a reader of this output.
            drop(tokio::spawn(output::line(text)));
            None
        }
        Some((program, arguments)) => {
            let mut command = command(program, arguments, args.logins.login, endpoint, session)?;
            match Job::start(&mut command) {
                Ok(job) => Some(job),
                Err(error) => return Ok((not_started(program, &error), None)),
            }
        }
    };
    // The command keeps the limit of the caller.
    let _ = serve::raise_descriptor_limit();
    let mut checks = interval(CHECK.min(args.logins.token_lifetime / 8));
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = checks.tick() => session.renew(server).await,
            ended = server.wait_ended() => {
                if let Some(job) = &mut job {
                    job.end(GRACE).await.map_err(Failure::system)?;
                }
                return match ended {
                    Ok(()) => Ok((Exit::Success.into(), None)),
                    Err(error) => Err(failure(&error, &args.listen)),
                };
            }
            status = ended(&mut job) => {
                let status = status.map_err(Failure::system)?;
                let typed = job.as_ref().and_then(Job::typed);
                if let (Some(job), Some(_)) = (&mut job, typed) {
                    // Processes of the command that ignored the signal.
                    job.end(GRACE).await.map_err(Failure::system)?;
                }
                return Ok((exit_code(status), typed));
            }
            received = signals.received() => match (&mut job, received) {
                (None, _) => return Ok((Exit::Success.into(), None)),
                (Some(job), Signal::TERM | Signal::HUP) => {
                    job.end(GRACE).await.map_err(Failure::system)?;
                    return Ok((signals::exit_code(received), None));
                }
                (Some(job), signal) => job.signal(signal),
            },
        }
    }
}

async fn ended(job: &mut Option<Job>) -> std::io::Result<std::process::ExitStatus> {
    match job {
        Some(job) => job.ended().await,
        None => std::future::pending().await,
    }
}

/// Returns the command with the variables of the login. It keeps a client id that the caller set.
#[expect(clippy::disallowed_methods, reason = "the caller may set the client id of the command")]
fn command(
    program: &str,
    arguments: &[String],
    login: DevLogin,
    endpoint: &Endpoint,
    session: &Session,
) -> Result<Command, Failure> {
    let variables = endpoint.variables(login, &session.directory);
    let variables = variables.ok_or_else(|| Failure::bad_input("--login none: not open"))?;
    let mut command = Command::new(program);
    command.args(arguments);
    for name in ALL {
        command.env_remove(name);
    }
    command.envs(variables);
    if std::env::var_os(CLIENT_ID.0).is_none() {
        command.env(CLIENT_ID.0, CLIENT_ID.1);
    }
    Ok(command)
}
