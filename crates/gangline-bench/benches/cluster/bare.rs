//! A loop over JetStream that keeps no order, retries nothing and knows no lost worker: what the messages alone cost.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::pull;
use async_nats::jetstream::stream::{self, RetentionPolicy};
use async_nats::jetstream::{self, Context, consumer};
use futures_util::StreamExt;
use gangline::Result;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

/// Tells this program to be a worker: the address, and the number of its slots.
const WORKER: &str = "GANGLINE_BENCH_BARE";

/// Sends this number of items through workers with slots, twice as many at a time as there are slots. Returns the
/// seconds that it takes.
pub(crate) fn run(url: &str, workers: usize, slots: usize, items: usize) -> Result<f64> {
    let runtime = runtime()?;
    let context = runtime.block_on(prepare(url))?;
    let mut processes = vec![];
    for _ in 0..workers {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(WORKER, format!("{url} {slots}")).stdin(Stdio::null());
        processes.push(command.spawn()?);
    }
    // They connect meanwhile.
    let time = runtime.block_on(async {
        coordinate(&context, 2 * workers * slots, workers * slots).await?;
        let since = Instant::now();
        coordinate(&context, 2 * workers * slots, items).await?;
        Ok(since.elapsed().as_secs_f64())
    });
    for mut process in processes {
        process.kill()?;
        process.wait()?;
    }
    time
}

/// Serves as a worker until it is killed, if this process was asked to.
pub(crate) fn serve_if_asked() -> Result<bool> {
    let Ok(asked) = std::env::var(WORKER) else { return Ok(false) };
    let (url, slots) = asked.split_once(' ').ok_or("an address and a number")?;
    let slots: usize = slots.parse()?;
    runtime()?.block_on(async {
        let context = jetstream::new(async_nats::connect(url).await?);
        let mut tasks = vec![];
        for _ in 0..slots {
            tasks.push(tokio::spawn(serve(context.clone())));
        }
        for task in tasks {
            task.await??;
        }
        Ok(true)
    })
}

fn runtime() -> Result<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

async fn prepare(url: &str) -> Result<Context> {
    let context = jetstream::new(async_nats::connect(url).await?);
    for name in ["bare-items", "bare-results"] {
        _ = context.delete_stream(name).await;
        let subjects = vec![name.replace('-', ".")];
        let retention = RetentionPolicy::WorkQueue;
        let config =
            stream::Config { name: name.to_owned(), subjects, retention, ..Default::default() };
        let made = context.create_stream(config).await?;
        let durable_name = Some("all".to_owned());
        made.create_consumer(pull::Config {
            durable_name,
            max_ack_pending: -1,
            ..Default::default()
        })
        .await?;
    }
    Ok(context)
}

async fn coordinate(context: &Context, in_flight: usize, items: usize) -> Result<()> {
    let permits = Arc::new(Semaphore::new(in_flight));
    let (publisher, free) = (context.clone(), permits.clone());
    let publishing = tokio::spawn(async move {
        let mut confirmations = vec![];
        for _ in 0..items {
            free.acquire().await?.forget();
            let sent = publisher.publish("bare.items", vec![7; 100].into()).await?;
            confirmations.push(tokio::spawn(async move { sent.await.map(|_| ()) }));
        }
        for confirmed in confirmations {
            confirmed.await??;
        }
        Result::<()>::Ok(())
    });
    let results: consumer::PullConsumer =
        context.get_consumer_from_stream("all", "bare-results").await?;
    let mut results = results.stream().max_messages_per_batch(256).messages().await?;
    for _ in 0..items {
        let result = results.next().await.ok_or("the results have ended")??;
        result.ack().await?;
        permits.add_permits(1);
    }
    publishing.await?
}

/// Takes one item after the other, answers, and acknowledges.
async fn serve(context: Context) -> Result<()> {
    let items: consumer::PullConsumer =
        context.get_consumer_from_stream("all", "bare-items").await?;
    loop {
        let mut taken =
            items.fetch().max_messages(1).expires(Duration::from_secs(5)).messages().await?;
        while let Some(item) = taken.next().await {
            let item = item?;
            context.publish("bare.results", item.payload.clone()).await?.await?;
            item.double_ack().await?;
        }
    }
}
