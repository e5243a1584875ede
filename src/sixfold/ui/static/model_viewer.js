"use strict";
// A viewer for GLB files: base color or texture, one light, rotated by dragging or arrow keys.
window.thing = (() => {
  const VERTEX = `attribute vec3 p; attribute vec3 n; attribute vec2 t; attribute vec4 c; uniform mat4 view; uniform mat4 turn;
    varying vec3 normal; varying vec2 uv; varying vec4 tint;
    void main() { normal = mat3(turn) * n; uv = t; tint = c; gl_Position = view * turn * vec4(p, 1.0); }`;
  const FRAGMENT = `precision mediump float; varying vec3 normal; varying vec2 uv; varying vec4 tint;
    uniform vec4 base; uniform sampler2D skin; uniform float skinned;
    void main() {
      vec3 n = normalize(normal);
      float key = max(dot(n, normalize(vec3(0.5, 0.8, 0.6))), 0.0), fill = max(dot(n, normalize(vec3(-0.7, 0.1, 0.4))), 0.0);
      vec4 colour = base * tint * mix(vec4(1.0), texture2D(skin, uv), skinned);
      vec3 lit = colour.rgb * (0.35 + 0.12 * n.y + 0.75 * key + 0.25 * fill);
      gl_FragColor = vec4(mix(lit, pow(lit, vec3(1.0 / 2.2)), 1.0 - skinned), 1.0);
    }`;
  const KINDS = { 5120: Int8Array, 5121: Uint8Array, 5122: Int16Array, 5123: Uint16Array, 5125: Uint32Array, 5126: Float32Array };
  const WIDE = { SCALAR: 1, VEC2: 2, VEC3: 3, VEC4: 4, MAT4: 16 };
  const UNIT = [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1];

  function times(a, b) {
    const out = new Array(16);
    for (let column = 0; column < 4; column += 1) for (let row = 0; row < 4; row += 1) {
      out[column * 4 + row] = [0, 1, 2, 3].reduce((sum, k) => sum + a[k * 4 + row] * b[column * 4 + k], 0);
    }
    return out;
  }

  function placed(node) {
    if (node.matrix) return node.matrix;
    const [x, y, z, w] = node.rotation ?? [0, 0, 0, 1];
    const [sx, sy, sz] = node.scale ?? [1, 1, 1];
    const [tx, ty, tz] = node.translation ?? [0, 0, 0];
    return [
      (1 - 2 * (y * y + z * z)) * sx, 2 * (x * y + z * w) * sx, 2 * (x * z - y * w) * sx, 0,
      2 * (x * y - z * w) * sy, (1 - 2 * (x * x + z * z)) * sy, 2 * (y * z + x * w) * sy, 0,
      2 * (x * z + y * w) * sz, 2 * (y * z - x * w) * sz, (1 - 2 * (x * x + y * y)) * sz, 0, tx, ty, tz, 1];
  }

  function read(buffer) {
    const view = new DataView(buffer);
    if (view.getUint32(0, true) !== 0x46546c67) throw new Error("The file is not a GLB");
    const length = view.getUint32(12, true);
    const json = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 20, length)));
    return { json, bytes: buffer.slice(28 + length) };
  }

  function numbers({ json, bytes }, index) {
    const accessor = json.accessors[index];
    const part = json.bufferViews[accessor.bufferView];
    const [Kind, wide] = [KINDS[accessor.componentType], WIDE[accessor.type]];
    const start = (part.byteOffset ?? 0) + (accessor.byteOffset ?? 0);
    const size = wide * Kind.BYTES_PER_ELEMENT;
    const stride = part.byteStride || size;
    const out = new Kind(accessor.count * wide);
    for (let at = 0; at < accessor.count; at += 1) {
      out.set(new Kind(bytes.slice(start + at * stride, start + at * stride + size)), at * wide);
    }
    if (!accessor.normalized) return out;
    return Float32Array.from(out, (value) => value / (2 ** (8 * Kind.BYTES_PER_ELEMENT) - 1));
  }

  function shapes(file) {
    const found = [];
    const walk = (index, above) => {
      const node = file.json.nodes[index];
      const here = times(above, placed(node));
      for (const part of file.json.meshes[node.mesh]?.primitives ?? []) found.push({ part, here });
      for (const child of node.children ?? []) walk(child, here);
    };
    for (const root of file.json.scenes[file.json.scene ?? 0].nodes) walk(root, UNIT);
    return found.map(({ part, here }) => shape(file, part, here));
  }

  function shape(file, part, here) {
    const given = numbers(file, part.attributes.POSITION);
    const p = new Float32Array(given.length);
    for (let at = 0; at < given.length; at += 3) for (let row = 0; row < 3; row += 1) {
      p[at + row] = here[row] * given[at] + here[4 + row] * given[at + 1] + here[8 + row] * given[at + 2] + here[12 + row];
    }
    const order = part.indices === undefined ? Uint32Array.from({ length: p.length / 3 }, (_, at) => at) : Uint32Array.from(numbers(file, part.indices));
    const optional = (name) => (part.attributes[name] === undefined ? null : numbers(file, part.attributes[name]));
    const material = file.json.materials?.[part.material]?.pbrMetallicRoughness ?? {};
    return {
      p, order, n: optional("NORMAL") ?? flat(p, order), t: optional("TEXCOORD_0"), c: optional("COLOR_0"),
      colours: part.attributes.COLOR_0 === undefined ? 4 : WIDE[file.json.accessors[part.attributes.COLOR_0].type],
      base: material.baseColorFactor ?? [1, 1, 1, 1], texture: material.baseColorTexture?.index };
  }

  function flat(p, order) {
    const out = new Float32Array(p.length);
    for (let at = 0; at < order.length; at += 3) {
      const [a, b, c] = [order[at] * 3, order[at + 1] * 3, order[at + 2] * 3];
      const u = [0, 1, 2].map((k) => p[b + k] - p[a + k]);
      const v = [0, 1, 2].map((k) => p[c + k] - p[a + k]);
      const cross = [u[1] * v[2] - u[2] * v[1], u[2] * v[0] - u[0] * v[2], u[0] * v[1] - u[1] * v[0]];
      for (const corner of [a, b, c]) cross.forEach((value, k) => { out[corner + k] += value; });
    }
    return out;
  }

  async function skin(gl, file, index) {
    const texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, texture);
    if (index === undefined) {
      gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, 1, 1, 0, gl.RGBA, gl.UNSIGNED_BYTE, new Uint8Array([255, 255, 255, 255]));
      return texture;
    }
    const image = file.json.images[file.json.textures[index].source];
    const part = file.json.bufferViews[image.bufferView];
    const start = part.byteOffset ?? 0;
    const blob = new Blob([file.bytes.slice(start, start + part.byteLength)], { type: image.mimeType });
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGBA, gl.RGBA, gl.UNSIGNED_BYTE, await createImageBitmap(blob));
    gl.generateMipmap(gl.TEXTURE_2D);
    return texture;
  }

  function program(gl) {
    const made = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text);
      gl.compileShader(shader);
      gl.attachShader(made, shader);
    }
    gl.linkProgram(made);
    gl.useProgram(made);
    return made;
  }

  function box(all) {
    const low = [Infinity, Infinity, Infinity], high = [-Infinity, -Infinity, -Infinity];
    for (const { p } of all) for (let at = 0; at < p.length; at += 1) {
      low[at % 3] = Math.min(low[at % 3], p[at]);
      high[at % 3] = Math.max(high[at % 3], p[at]);
    }
    return { middle: low.map((value, k) => (value + high[k]) / 2), reach: Math.hypot(...high.map((value, k) => value - low[k])) / 2 || 1 };
  }

  return async (canvas) => {
    const file = read(await (await fetch(canvas.dataset.thing)).arrayBuffer());
    const gl = canvas.getContext("webgl2", { antialias: true, alpha: true, preserveDrawingBuffer: true });
    const all = shapes(file), made = program(gl), { middle, reach } = box(all);
    const place = (name) => gl.getUniformLocation(made, name);
    for (const one of all) {
      one.skin = await skin(gl, file, one.texture);
      one.array = gl.createVertexArray();
      gl.bindVertexArray(one.array);
      for (const [name, wide] of [["p", 3], ["n", 3], ["t", 2], ["c", one.colours]]) {
        const at = gl.getAttribLocation(made, name);
        if (!one[name]) { gl.vertexAttrib4f(at, 1, 1, 1, 1); continue; }
        gl.bindBuffer(gl.ARRAY_BUFFER, gl.createBuffer());
        gl.bufferData(gl.ARRAY_BUFFER, Float32Array.from(one[name]), gl.STATIC_DRAW);
        gl.enableVertexAttribArray(at);
        gl.vertexAttribPointer(at, wide, gl.FLOAT, false, 0, 0);
      }
      gl.bindBuffer(gl.ELEMENT_ARRAY_BUFFER, gl.createBuffer());
      gl.bufferData(gl.ELEMENT_ARRAY_BUFFER, one.order, gl.STATIC_DRAW);
    }
    let [round, tilt, held] = [0.6, 0.35, matchMedia("(prefers-reduced-motion: reduce)").matches];
    const draw = () => {
      const [c, s, d, e] = [Math.cos(round), Math.sin(round), Math.cos(tilt), Math.sin(tilt)];
      const spin = times([1, 0, 0, 0, 0, d, e, 0, 0, -e, d, 0, 0, 0, 0, 1], [c, 0, -s, 0, 0, 1, 0, 0, s, 0, c, 0, 0, 0, 0, 1]);
      const turn = times(spin, [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, -middle[0], -middle[1], -middle[2], 1]);
      const [f, near, far, away] = [2.4, reach, reach * 6, reach * 2.3];
      const view = [f * (canvas.height / canvas.width), 0, 0, 0, 0, f, 0, 0, 0, 0, -(far + near) / (far - near), -1, 0, 0, (away * (far + near) - 2 * far * near) / (far - near), away];
      gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
      gl.uniformMatrix4fv(place("view"), false, view);
      gl.uniformMatrix4fv(place("turn"), false, turn);
      for (const one of all) {
        gl.bindVertexArray(one.array);
        gl.bindTexture(gl.TEXTURE_2D, one.skin);
        gl.uniform4fv(place("base"), one.base);
        gl.uniform1f(place("skinned"), one.texture === undefined ? 0 : 1);
        gl.drawElements(gl.TRIANGLES, one.order.length, gl.UNSIGNED_INT, 0);
      }
    };
    const go = () => { if (!canvas.isConnected) return; if (!held) { round += 0.008; draw(); } requestAnimationFrame(go); };
    canvas.addEventListener("pointerdown", (event) => { held = true; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointermove", (event) => {
      if (!event.buttons) return;
      round += event.movementX / 120; tilt += event.movementY / 160; draw();
    });
    canvas.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [-0.15, 0], ArrowRight: [0.15, 0], ArrowUp: [0, -0.15], ArrowDown: [0, 0.15] }[event.key];
      if (!by) return;
      event.preventDefault(); held = true; round += by[0]; tilt += by[1]; draw();
    });
    gl.enable(gl.DEPTH_TEST);
    gl.clearColor(0, 0, 0, 0);
    draw();
    canvas.dataset.ready = String(all.reduce((sum, one) => sum + one.order.length / 3, 0));
    go();
  };
})();
