//! A program for tests: takes one JSON object a line, does it with the Rust client for gRPC, and answers with a line that
//! has the same id, and rows or an error. Lines are answered as they get done, not in order.
//!
//! This client has no push consumer. What is asked of one is done by a loop around a simple consumer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rocketmq::conf::{ClientOption, ProducerOption, SimpleConsumerOption};
use rocketmq::model::common::{FilterExpression, FilterType};
use rocketmq::model::message::{Message, MessageBuilder, MessageView};
use rocketmq::model::transaction::{Transaction, TransactionResolution};
use rocketmq::{Producer, SimpleConsumer};
use serde_json::{json, Value};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::task::JoinHandle;

type Problem = Box<dyn std::error::Error + Send + Sync>;
type Rows = Result<Vec<Value>, Problem>;

struct Reader {
    consumer: SimpleConsumer,
    topic: String,
    filter: FilterExpression,
}

#[derive(Default)]
struct Hall {
    tls: bool,
    producers: Mutex<HashMap<String, Arc<Producer>>>,
    readers: Mutex<HashMap<String, Arc<Reader>>>,
    loops: Mutex<HashMap<String, JoinHandle<()>>>,
    inboxes: Arc<Mutex<HashMap<String, Vec<Value>>>>,
    received: Mutex<Vec<Arc<MessageView>>>,
}

#[tokio::main]
async fn main() {
    let tls = std::env::args().any(|argument| argument == "tls");
    let hall = Arc::new(Hall { tls, ..Hall::default() });
    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let hall = hall.clone();
        tokio::spawn(async move {
            let told: Value = serde_json::from_str(&line).expect("a line of JSON");
            let said = match hall.act(&told).await {
                Ok(rows) => json!({"id": told["id"], "rows": rows}),
                Err(problem) => json!({"id": told["id"], "error": problem.to_string()}),
            };
            println!("{said}");
        });
    }
    std::process::exit(0);
}

fn text<'a>(told: &'a Value, field: &str) -> &'a str {
    told[field].as_str().unwrap_or("")
}

fn number(told: &Value, field: &str) -> u64 {
    told[field].as_u64().unwrap_or(0)
}

/// What an error says, without the calls that led to it.
fn explain(error: impl std::fmt::Debug) -> Problem {
    let text = format!("{error:?}");
    text.split("Stack backtrace").next().unwrap_or("").into()
}

fn describe(view: &MessageView) -> Value {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    json!({
        "topic": view.topic(),
        "body": String::from_utf8_lossy(view.body()),
        "tag": view.tag(),
        "keys": view.keys(),
        "properties": view.properties(),
        "messageId": view.message_id(),
        "group": view.message_group(),
        "attempt": view.delivery_attempt(),
        "deliverAt": view.delivery_timestamp().map(|seconds| seconds * 1000),
        "at": now.as_millis() as u64,
    })
}

impl Hall {
    async fn act(&self, told: &Value) -> Rows {
        let name = text(told, "name").to_string();
        match text(told, "do") {
            "producer" => self.start_producer(name, told).await,
            "send" => self.send(&name, told).await,
            "simple" => {
                let reader = self.open_reader(told).await?;
                self.readers.lock().unwrap().insert(name, Arc::new(reader));
                Ok(vec![])
            }
            "push" => self.start_loop(name, told).await,
            "receive" => self.receive(&name, told).await,
            "ack" => {
                let view = self.received.lock().unwrap()[text(told, "key")[1..].parse::<usize>()?].clone();
                let reader = self.readers.lock().unwrap()[&name].clone();
                reader.consumer.ack(view.as_ref()).await.map_err(explain)?;
                Ok(vec![])
            }
            "list" => Ok(self.inboxes.lock().unwrap().get(&name).cloned().unwrap_or_default()),
            "stop" => self.stop(&name).await,
            other => Err(format!("this client cannot do it: {other}").into()),
        }
    }

    fn configure(&self, told: &Value) -> ClientOption {
        let mut option = ClientOption::default();
        option.set_access_url(text(told, "endpoints"));
        option.set_enable_tls(self.tls);
        option.set_timeout(Duration::from_secs(10));
        // It is the deadline of a call too, and servers want more than five seconds of it.
        option.set_long_polling_timeout(Duration::from_secs(10));
        if !text(told, "accessKey").is_empty() {
            option.set_access_key(text(told, "accessKey"));
            option.set_secret_key(text(told, "secretKey"));
        }
        option
    }

    async fn stop(&self, name: &str) -> Rows {
        if let Some(task) = self.loops.lock().unwrap().remove(name) {
            task.abort();
        }
        let producer = self.producers.lock().unwrap().remove(name);
        if let Some(producer) = producer.and_then(Arc::into_inner) {
            producer.shutdown().await.map_err(explain)?;
        }
        let reader = self.readers.lock().unwrap().remove(name);
        if let Some(reader) = reader.and_then(Arc::into_inner) {
            reader.consumer.shutdown().await.map_err(explain)?;
        }
        Ok(vec![])
    }

    // --- producing

    async fn start_producer(&self, name: String, told: &Value) -> Rows {
        let topics: Vec<String> = serde_json::from_value(told["topics"].clone())?;
        let mut option = ProducerOption::default();
        option.set_topics(topics);
        let (inboxes, check, of) = (self.inboxes.clone(), text(told, "check").to_string(), name.clone());
        let checker = Box::new(move |_: String, view: MessageView| {
            inboxes.lock().unwrap().entry(of.clone()).or_default().push(describe(&view));
            match check.as_str() {
                "commit" => TransactionResolution::COMMIT,
                "rollback" => TransactionResolution::ROLLBACK,
                _ => TransactionResolution::UNKNOWN,
            }
        });
        let mut producer =
            Producer::new_transaction_producer(option, self.configure(told), checker).map_err(explain)?;
        producer.start().await.map_err(explain)?;
        self.producers.lock().unwrap().insert(name, Arc::new(producer));
        Ok(vec![])
    }

    async fn send(&self, name: &str, told: &Value) -> Rows {
        let producer = self.producers.lock().unwrap()[name].clone();
        let mut rows = vec![];
        for each in told["messages"].as_array().into_iter().flatten() {
            let end = text(told, "transaction");
            let message = build(each, !end.is_empty())?;
            let id = if end.is_empty() {
                producer.send(message).await.map_err(explain)?.message_id().to_string()
            } else {
                let transaction = producer.send_transaction_message(message).await.map_err(explain)?;
                let id = transaction.message_id().to_string();
                match end {
                    "commit" => transaction.commit().await.map_err(explain)?,
                    "rollback" => transaction.rollback().await.map_err(explain)?,
                    _ => (),
                }
                id
            };
            rows.push(json!({"messageId": id}));
        }
        Ok(rows)
    }

    // --- consuming

    async fn open_reader(&self, told: &Value) -> Result<Reader, Problem> {
        let (topic, filter) = told["subscriptions"].as_object().and_then(|all| all.iter().next()).ok_or("no topic")?;
        let kind = if text(filter, "type") == "SQL" { FilterType::Sql } else { FilterType::Tag };
        let mut option = SimpleConsumerOption::default();
        option.set_consumer_group(text(told, "group"));
        option.set_topics(vec![topic.clone()]);
        let mut consumer = SimpleConsumer::new(option, self.configure(told)).map_err(explain)?;
        consumer.start().await.map_err(explain)?;
        let filter = FilterExpression::new(kind, text(filter, "expression"));
        Ok(Reader { consumer, topic: topic.clone(), filter })
    }

    async fn start_loop(&self, name: String, told: &Value) -> Rows {
        let (reader, inboxes, of) = (self.open_reader(told).await?, self.inboxes.clone(), name.clone());
        let task = tokio::spawn(async move {
            loop {
                let came = reader.consumer.receive_with(&reader.topic, &reader.filter, 16, Duration::from_secs(60));
                for view in came.await.unwrap_or_default() {
                    inboxes.lock().unwrap().entry(of.clone()).or_default().push(describe(&view));
                    if let Err(error) = reader.consumer.ack(&view).await {
                        eprintln!("not acknowledged: {error:?}");
                    }
                }
            }
        });
        self.loops.lock().unwrap().insert(name, task);
        Ok(vec![])
    }

    async fn receive(&self, name: &str, told: &Value) -> Rows {
        let reader = self.readers.lock().unwrap()[name].clone();
        let invisible = Duration::from_millis(number(told, "invisibleMs"));
        let most = number(told, "max") as i32;
        let came = reader.consumer.receive_with(&reader.topic, &reader.filter, most, invisible).await;
        // Its deadline is the time that the server waits for messages, so that it often gets no answer when there are none.
        let came = came.map_err(explain).or_else(|error| {
            if error.to_string().contains("Timeout expired") { Ok(vec![]) } else { Err(error) }
        });
        let mut rows = vec![];
        for view in came? {
            let mut row = describe(&view);
            let mut received = self.received.lock().unwrap();
            row["key"] = json!(format!("m{}", received.len()));
            received.push(Arc::new(view));
            rows.push(row);
        }
        Ok(rows)
    }
}

fn build(told: &Value, transaction: bool) -> Result<impl Message, Problem> {
    let mut builder =
        MessageBuilder::builder().set_topic(text(told, "topic")).set_body(text(told, "body").as_bytes().to_vec());
    if !text(told, "tag").is_empty() {
        builder = builder.set_tag(text(told, "tag"));
    }
    if let Some(keys) = told["keys"].as_array() {
        builder = builder.set_keys(keys.iter().filter_map(Value::as_str).collect());
    }
    if !text(told, "group").is_empty() {
        builder = builder.set_message_group(text(told, "group"));
    }
    if let Some(at) = told["deliverAt"].as_i64() {
        builder = builder.set_delivery_timestamp(at / 1000);
    }
    if let Some(properties) = told["properties"].as_object() {
        let texts = properties.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or("").to_string()));
        builder = builder.set_properties(texts.collect::<HashMap<_, _>>());
    }
    if transaction {
        builder = builder.enable_transaction();
    }
    builder.build().map_err(explain)
}
