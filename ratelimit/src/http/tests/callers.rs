//! Pages of other sites: the browser of who runs the service sends what they want.

use super::*;

fn from(mut request: Request<Full<Bytes>>, headers: &[(&'static str, &'static str)]) -> Request<Full<Bytes>> {
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

#[tokio::test]
async fn pages_of_other_sites_can_neither_change_nor_read() {
    let server = in_memory().await;
    let bucket = json!({"tenant": "t", "limit": "tpd", "model": "gpt"});
    let correction = json!({"bucket": bucket, "id": "x", "change": "charge", "amount": 1}).to_string();
    let reserve = reserve_body().to_string();
    let calls: [(_, _, _, &str); 8] = [
        (server.api, Method::POST, "/v1/reserve", &reserve),
        (server.api, Method::GET, "/v1/models", ""),
        (server.api, Method::GET, "/v1/other", ""),
        (server.admin, Method::POST, "/v1/corrections", &correction),
        (server.admin, Method::GET, "/v1/explain?tenant=t&model=gpt", ""),
        (server.admin, Method::GET, "/v1/holds?tenant=t", ""),
        (server.admin, Method::GET, "/metrics", ""),
        (server.admin, Method::DELETE, "/v1/overrides?tenant=t&limit=tpd", ""),
    ];
    for (to, method, path, body) in &calls {
        for (field, headers) in [
            ("origin", [("origin", "https://attacker.example")].as_slice()),
            ("origin", &[("origin", "null")]),
            ("origin", &[("host", "127.0.0.1:8091"), ("origin", "http://127.0.0.1:3000")]),
            ("sec-fetch-site", &[("sec-fetch-site", "cross-site")]),
            ("sec-fetch-site", &[("sec-fetch-site", "same-site")]),
            ("host", &[("host", "attacker.example:8091")]),
            ("host", &[("host", "attacker.example"), ("origin", "http://attacker.example")]),
            ("host", &[("host", "0.0.0.0:8091")]),
        ] {
            let mut request = request(method.clone(), path, (*body).to_owned());
            // As a browser writes it.
            *request.uri_mut() = path.parse().unwrap();
            let (status, answer) = send(*to, false, from(request, headers)).await;
            assert_eq!(status, StatusCode::FORBIDDEN, "{path} {headers:?}");
            assert_eq!(answer["error"]["field"], field, "{path} {headers:?}");
        }
        let mut request = request(method.clone(), path, (*body).to_owned());
        *request.uri_mut() = format!("http://attacker.example{path}").parse().unwrap();
        request.headers_mut().remove("host");
        assert_eq!(send(*to, true, request).await.0, StatusCode::FORBIDDEN, "{path} over HTTP/2");
    }
    let (_, explained) = get(server.admin, "/v1/explain?tenant=t&model=gpt").await;
    assert_eq!((&explained["limits"][1]["used"], &explained["open_holds"]), (&json!(0), &json!(0)));
    let refused = "refused_calls_total{cause=\"foreign\"} 27\n";
    assert!(server.metrics().contains(refused), "{}", server.metrics());
}

/// What a page can send without asking first is not understood.
#[tokio::test]
async fn bodies_are_json_and_say_so() {
    let server = in_memory().await;
    let bucket = json!({"bucket": {"tenant": "t", "limit": "tpd", "model": "gpt"}});
    for (to, path, body, times) in [
        (server.api, "/v1/reserve", reserve_body(), 7),
        (server.api, "/v1/settle", json!([]), 7),
        (server.api, "/v1/extend", json!([]), 7),
        (server.admin, "/v1/buckets/reset", bucket.clone(), 7),
    ] {
        for said in [
            "text/plain",
            "text/plain;charset=UTF-8",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "application/jsonx",
            "text/plain; a=application/json",
            "",
        ]
        .iter()
        .take(times)
        {
            let request = from(request(Method::POST, path, body.to_string()), &[("content-type", said)]);
            let (status, answer) = send(to, false, request).await;
            assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path} {said}");
            assert_eq!(answer["error"]["field"], "content-type");
        }
        let mut without = request(Method::POST, path, body.to_string());
        without.headers_mut().remove("content-type");
        assert_eq!(send(to, false, without).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path}");
        let mut twice = request(Method::POST, path, body.to_string());
        twice.headers_mut().append("content-type", "text/plain".parse().unwrap());
        assert_eq!(send(to, false, twice).await.0, StatusCode::UNSUPPORTED_MEDIA_TYPE, "{path}");
        for said in ["application/json; charset=utf-8", "Application/JSON", "application/json ;x=y"] {
            let request = from(request(Method::POST, path, body.to_string()), &[("content-type", said)]);
            assert_eq!(send(to, false, request).await.0, StatusCode::OK, "{path} {said}");
        }
    }
}

/// Who has a token calls by any name, and still is no page.
#[tokio::test]
async fn with_a_token_any_name_will_do() {
    let setup = Setup { token: Some("filters"), admin_token: Some("operators"), ..Setup::default() };
    let server = start(setup).await;
    for (to, path, token) in
        [(server.api, "/v1/models", "Bearer filters"), (server.admin, "/metrics", "Bearer operators")]
    {
        let call = |headers: &[(&'static str, &'static str)]| {
            let mut request = from(request(Method::GET, path, ""), headers);
            request.headers_mut().insert("authorization", token.parse().unwrap());
            *request.uri_mut() = path.parse().unwrap();
            send(to, false, request)
        };
        assert_eq!(call(&[("host", "quota.example:8090")]).await.0, StatusCode::OK);
        let page = [("host", "quota.example:8090"), ("origin", "https://attacker.example")];
        assert_eq!(call(&page).await.0, StatusCode::FORBIDDEN);
    }
}
