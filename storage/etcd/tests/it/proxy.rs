//! A way to etcd that can be shut, and that can lose the answers to what it has let through.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Open,
    /// Nothing passes either way, and nobody is told.
    Shut,
    /// What is asked passes, and no answer does.
    Deaf,
    /// All connections end.
    Cut,
}

pub(crate) struct Proxy {
    port: u16,
    way: Arc<watch::Sender<Way>>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let way = Arc::new(watch::Sender::new(Way::Open));
        let of_task = Arc::clone(&way);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, port, of_task.subscribe()));
            }
        });
        Self { port: own, way, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, way: Way) {
        self.way.send_replace(way);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(mut client: TcpStream, port: u16, mut way: watch::Receiver<Way>) {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", port)).await else { return };
    let (mut asked, mut answered) = (vec![0; 64 << 10], vec![0; 64 << 10]);
    loop {
        let now = *way.borrow_and_update();
        tokio::select! {
            biased;
            changed = way.changed() => if changed.is_err() { return },
            () = std::future::ready(()), if now == Way::Cut => return,
            read = client.read(&mut asked), if now != Way::Shut => match read {
                Ok(0) | Err(_) => return,
                Ok(len) => if server.write_all(&asked[..len]).await.is_err() { return },
            },
            read = server.read(&mut answered), if now != Way::Shut => match read {
                Ok(0) | Err(_) => return,
                Ok(_) if now == Way::Deaf => {}
                Ok(len) => if client.write_all(&answered[..len]).await.is_err() { return },
            },
        }
    }
}
