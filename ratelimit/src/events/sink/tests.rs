#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)]
use std::collections::VecDeque;
use std::sync::Mutex;

use axum::http::{HeaderMap, StatusCode};

use super::*;

#[tokio::test]
async fn a_file_is_appended_to_and_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, moved) = (directory.path().join("usage.jsonl"), directory.path().join("usage.1"));
    std::fs::write(&path, "0\n").unwrap();
    let reopen = Reopen::default();
    let mut sink = FileSink::open(&path, reopen.clone()).unwrap();
    sink.write(&["1".to_owned(), "2".to_owned()]).await.unwrap();
    std::fs::rename(&path, &moved).unwrap();
    sink.write(&["3".to_owned()]).await.unwrap();
    reopen.ask();
    sink.write(&["4".to_owned()]).await.unwrap();
    assert_eq!(std::fs::read_to_string(&moved).unwrap(), "0\n1\n2\n3\n");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "4\n");
    // A disk that is full.
    let mut full = FileSink::open(std::path::Path::new("/dev/full"), Reopen::default()).unwrap();
    let error = full.write(&["1".to_owned()]).await.unwrap_err();
    assert!(matches!(&error, SinkError::Away(reason) if reason.contains("/dev/full")), "{error:?}");
    assert!(FileSink::open(&directory.path().join("no/such"), Reopen::default()).is_err());
}

#[tokio::test]
async fn an_http_sink_tells_a_no_from_a_not_now() {
    let answers = [204, 503, 429, 404, 400, 413];
    type Seen = Arc<Mutex<Vec<(HeaderMap, String)>>>;
    let seen = Seen::default();
    let left = Arc::new(Mutex::new(VecDeque::from(answers)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let collect = seen.clone();
    let app = axum::Router::new().fallback(async move |headers: HeaderMap, body: String| {
        collect.lock().unwrap().push((headers, body));
        StatusCode::from_u16(left.lock().unwrap().pop_front().unwrap()).unwrap()
    });
    tokio::spawn(async move { axum::serve(listener, app).await });
    let tls = || {
        rustls::ClientConfig::builder()
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth()
    };
    let uri: hyper::Uri = format!("http://{address}/usage").parse().unwrap();
    let mut sink = HttpSink::new(uri, Some("t0ken"), tls()).unwrap();
    for status in answers {
        let answer = sink.write(&["{}".to_owned(), "[]".to_owned()]).await;
        match (status, answer) {
            (204, Ok(()))
            | (503 | 429 | 404, Err(SinkError::Away(_)))
            | (400 | 413, Err(SinkError::Refused(_))) => {}
            other => panic!("{other:?}"),
        }
    }
    let (headers, body) = seen.lock().unwrap()[0].clone();
    assert_eq!(body, "{}\n[]\n");
    assert_eq!(headers["content-type"], "application/x-ndjson");
    assert_eq!(headers["authorization"], "Bearer t0ken");
    let mut nobody = HttpSink::new("http://127.0.0.1:1/".parse().unwrap(), None, tls()).unwrap();
    assert!(matches!(nobody.write(&["{}".to_owned()]).await, Err(SinkError::Away(_))));
    assert!(HttpSink::new("http://h/".parse().unwrap(), Some("a\nb"), tls()).is_err());
}

#[test]
fn a_sink_is_named_by_one_word() {
    let read = |text: &str| text.parse::<SinkKind>();
    assert_eq!(read("none"), Ok(SinkKind::None));
    assert_eq!(read("stdout"), Ok(SinkKind::Stdout));
    assert_eq!(read("file:/a b"), Ok(SinkKind::File("/a b".into())));
    assert_eq!(read("https://h:1/p"), Ok(SinkKind::Http("https://h:1/p".parse().unwrap())));
    for bad in ["", "file:", "/path", "ftp://h/", "http://", "STDOUT"] {
        assert!(read(bad).is_err(), "{bad}");
    }
}

#[tokio::test]
async fn an_https_sink_writes_only_to_whom_it_trusts() {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let server = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            // A client that does not trust us ends it here.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let answer = hyper::service::service_fn(async |_| {
                Ok::<_, std::convert::Infallible>(hyper::Response::new(String::new()))
            });
            let io = hyper_util::rt::TokioIo::new(stream);
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(io, answer));
        }
    });
    let sink = |trusted: bool, host: &str| {
        let mut roots = rustls::RootCertStore::empty();
        if trusted {
            roots.add(certificate.der().clone()).unwrap();
        }
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
        HttpSink::new(format!("https://{host}:{port}/").parse().unwrap(), None, tls).unwrap()
    };
    let lines = ["{}".to_owned()];
    assert_eq!(sink(true, "localhost").write(&lines).await, Ok(()));
    for mut other in [sink(false, "localhost"), sink(true, "127.0.0.1")] {
        assert!(matches!(other.write(&lines).await, Err(SinkError::Away(_))));
    }
}
