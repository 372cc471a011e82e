// The reference at /reference/: Swagger UI over our own openapi.json. Nothing is
// stored, no validator is asked, and nothing but the service is called.
"use strict";

(async () => {
  const base = new URL("..", location.href).href.replace(/\/$/, "");
  const spec = await (await fetch(base + "/openapi.json", { cache: "no-cache" })).json();
  spec.servers = [{ url: base }];
  SwaggerUIBundle({
    spec,
    dom_id: "#reference",
    validatorUrl: null,
    deepLinking: false, // its links would stand within buttons
    persistAuthorization: false,
    tryItOutEnabled: true,
    displayRequestDuration: true,
    defaultModelsExpandDepth: -1,
    requestInterceptor: (request) => Object.assign(request, {
      cache: "no-store", credentials: "omit", redirect: "error", referrerPolicy: "no-referrer",
    }),
  });
})();
